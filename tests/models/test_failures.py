"""Whatever a provider or the road to it does, one of our errors comes out: with the fix, without a key."""

from __future__ import annotations

import gzip
import logging
import socket
import ssl
from types import ModuleType
from typing import Any, get_args

import httpx
import httpx2
import pytest
from models.asking import KEY, anthropic, ask, openai, request_of
from models.served import Canned, json_body, serving, sse

from sevenfold.core.errors import (
    BadReply,
    BadRequest,
    KeyRefused,
    ModelFailure,
    ModelNotFound,
    Overloaded,
    PromptTooLong,
    RateLimited,
    Unreachable,
)
from sevenfold.models import ModelAccess
from sevenfold.models import anthropic as anthropic_module
from sevenfold.models import openai as openai_module
from sevenfold.models.anthropic import AnthropicModel
from sevenfold.models.failures import (
    Mapped,
    ProviderInfo,
    ServerRefusal,
    list_transport_errors,
    map_transport_error,
    parse_error_body,
    parse_retry_after,
)
from sevenfold.models.openai import OpenAiModel

WHO = ProviderInfo("Anthropic", "api.anthropic.com", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
MAPS = [anthropic_module.map_anthropic_error, openai_module.map_openai_error]
LEAVES = (
    PromptTooLong,
    RateLimited,
    Overloaded,
    KeyRefused,
    ModelNotFound,
    BadRequest,
    Unreachable,
    BadReply,
)


def is_ours(error: ModelFailure) -> None:
    assert type(error) in LEAVES
    text = str(error)
    assert text
    assert "\n" not in text
    assert "None" not in text


# --- the maps are total -------------------------------------------------------------------------------


@pytest.mark.parametrize("mapped", MAPS)
def test_every_status_is_one_of_our_errors_whatever_the_type(mapped: Mapped) -> None:
    kinds = ["", "unheard_of", *anthropic_module.ERROR_TYPES, *openai_module.ERROR_TYPES]
    for status in [None, *range(400, 600)]:
        for kind in kinds:
            is_ours(mapped(ServerRefusal(WHO, status, kind, message="why")))
            is_ours(mapped(ServerRefusal(WHO, status, code=kind)))


def test_every_error_type_that_anthropic_documents_is_in_the_map() -> None:
    from anthropic.types.shared.error_type import ErrorType

    documented = {*get_args(ErrorType), "request_too_large"}
    assert documented == set(anthropic_module.ERROR_TYPES)


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (400, "invalid_request_error", BadRequest),
        (401, "authentication_error", KeyRefused),
        (402, "billing_error", KeyRefused),
        (403, "permission_error", KeyRefused),
        (404, "not_found_error", ModelNotFound),
        (404, "invalid_request_error", ModelNotFound),
        (409, "conflict_error", Overloaded),
        (413, "request_too_large", PromptTooLong),
        (422, "", BadRequest),
        (429, "rate_limit_error", RateLimited),
        (500, "api_error", Overloaded),
        (502, "", Overloaded),
        (504, "timeout_error", Overloaded),
        (529, "overloaded_error", Overloaded),
        (None, "overloaded_error", Overloaded),
        (None, "rate_limit_error", RateLimited),
    ],
)
def test_anthropics_errors(status: int | None, kind: str, expected: type[ModelFailure]) -> None:
    assert type(anthropic_module.map_anthropic_error(ServerRefusal(WHO, status, kind))) is expected


@pytest.mark.parametrize(
    ("status", "kind", "code", "expected"),
    [
        (400, "invalid_request_error", "", BadRequest),
        (400, "invalid_request_error", "context_length_exceeded", PromptTooLong),
        (401, "invalid_request_error", "invalid_api_key", KeyRefused),
        (403, "request_forbidden", "unsupported_country_region_territory", KeyRefused),
        (404, "invalid_request_error", "model_not_found", ModelNotFound),
        (404, "NotFoundError", "404", ModelNotFound),
        (429, "requests", "rate_limit_exceeded", RateLimited),
        (429, "insufficient_quota", "insufficient_quota", KeyRefused),
        (500, "server_error", "", Overloaded),
        (501, "not_supported_error", "501", BadRequest),
        (503, "unavailable_error", "503", Overloaded),
        (None, "server_error", "", Overloaded),
        (400, "BadRequestError", "400", BadRequest),
    ],
)
def test_errors_of_openai_and_its_like(
    status: int | None, kind: str, code: str, expected: type[ModelFailure]
) -> None:
    assert type(openai_module.map_openai_error(ServerRefusal(WHO, status, kind, code))) is expected


def every_subclass(*kinds: type[BaseException]) -> set[type[BaseException]]:
    found = set(kinds)
    for kind in kinds:
        found |= every_subclass(*kind.__subclasses__())
    return found


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_every_exception_of_the_http_library_is_mapped(library: ModuleType) -> None:
    public = [getattr(library, name) for name in dir(library)]
    raised = {
        one
        for one in public
        if isinstance(one, type) and issubclass(one, Exception) and not issubclass(one, Warning)
    }
    assert len(raised) > 20
    for kind in raised | every_subclass(library.HTTPError, library.StreamError):
        assert issubclass(kind, list_transport_errors())
        error = kind.__new__(kind)
        error.args = (f"Illegal header value b'{KEY}'",)
        is_ours(mapped := map_transport_error(error, WHO))
        assert KEY not in str(mapped)


@pytest.mark.parametrize(
    ("error", "expected", "again"),
    [
        (httpx.ConnectTimeout("x"), Unreachable, True),
        (httpx.ReadTimeout("x"), Unreachable, True),
        (httpx.RemoteProtocolError("x"), Unreachable, True),
        (httpx.ProxyError("x"), Unreachable, True),
        (httpx.UnsupportedProtocol("x"), BadRequest, False),
        (httpx.InvalidURL("x"), BadRequest, False),
        (httpx.LocalProtocolError("x"), BadRequest, False),
        (httpx.DecodingError("x"), BadReply, True),
        (httpx2.ReadError("x"), Unreachable, True),
    ],
)
def test_what_helps_is_tried_again_and_what_cannot_help_is_not(
    error: Exception, expected: type[ModelFailure], again: bool
) -> None:
    mapped = map_transport_error(error, WHO)
    assert (type(mapped), mapped.retryable) == (expected, again)


def caused(error: Exception, cause: BaseException) -> Exception:
    middle = httpx.NetworkError("in between")
    middle.__cause__, error.__cause__ = cause, middle
    return error


def test_a_certificate_for_another_name_is_said_to_be_one_and_not_tried_again() -> None:
    bad = ssl.SSLCertVerificationError(1, "certificate verify failed")
    bad.verify_message = "Hostname mismatch, certificate is not valid for 'api.anthropic.com'."
    mapped = map_transport_error(caused(httpx.ConnectError("[SSL]"), bad), WHO)
    assert "Hostname mismatch" in str(mapped)
    assert "ANTHROPIC_BASE_URL" in str(mapped)
    assert (type(mapped), mapped.retryable) == (Unreachable, False)


def test_a_host_that_does_not_exist_is_named() -> None:
    mapped = map_transport_error(caused(httpx.ConnectError("x"), socket.gaierror(-2, "no")), WHO)
    assert "there is no host api.anthropic.com" in str(mapped)


@pytest.mark.anyio
async def test_a_server_that_speaks_no_tls_is_unreachable() -> None:
    async with serving(Canned(b"hello")) as server:
        url = server.url.replace("http://", "https://")
        model = AnthropicModel("claude-opus-4-5", ModelAccess(anthropic_base_url=url, anthropic_key=KEY))
        with pytest.raises(Unreachable, match="no safe connection to 127") as caught:
            await ask(model)
        await model.close()
    assert not caught.value.retryable


@pytest.mark.anyio
async def test_a_port_where_nothing_listens_is_unreachable_and_says_how_to_mend_it() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    access = ModelAccess(anthropic_base_url=url, openai_base_url=url)
    for model in (AnthropicModel("claude-opus-4-5", access), OpenAiModel("openai:m", access)):
        with pytest.raises(Unreachable, match=f"nothing listens at 127.0.0.1:{port}") as caught:
            await ask(model)
        assert not caught.value.retryable
        await model.close()


@pytest.mark.anyio
@pytest.mark.parametrize("url", ["not a url", "ftp://x", "http://", "http://[::1", "http://a:b:c"])
async def test_an_address_that_is_none_names_its_variable(url: str) -> None:
    access = ModelAccess(anthropic_base_url=url, openai_base_url=url)
    for model, variable in (
        (AnthropicModel("claude-opus-4-5", access), "ANTHROPIC_BASE_URL"),
        (OpenAiModel("openai:m", access), "OPENAI_BASE_URL"),
    ):
        with pytest.raises(BadRequest, match=variable):
            await ask(model)
        await model.close()


# --- what is said -------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_wrong_key_says_which_variable_to_set_and_never_shows_the_key() -> None:
    said = {"error": {"type": "authentication_error", "message": f"invalid x-api-key {KEY}"}}
    async with serving(json_body(said, 401)) as server:
        for model, name in ((anthropic(server), "ANTHROPIC_API_KEY"), (openai(server), "OPENAI_API_KEY")):
            with pytest.raises(KeyRefused, match=name) as caught:
                await ask(model)
            assert "the model 'offline'" in str(caught.value)
            assert KEY not in repr(caught.value)


@pytest.mark.anyio
async def test_a_server_that_quotes_the_key_back_does_not_get_it_shown_or_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "team-secret-77"
    said = {"error": {"type": "invalid_request_error", "message": f"bad header {KEY}, {secret}"}}
    async with serving(json_body(said, 400)) as server:
        for model in (
            anthropic(server, headers={"x-team": secret}),
            openai(server, headers={"x-team": secret}),
        ):
            with pytest.raises(BadRequest, match=r"bad header \*\*\*, \*\*\*") as caught:
                await ask(model)
            shown = f"{caught.value!r} {model!r} {caught.value.__cause__!r}"
            assert KEY not in shown
            assert secret not in shown
    assert KEY not in caplog.text
    assert secret not in caplog.text


@pytest.mark.anyio
async def test_a_key_that_comes_back_in_the_middle_of_a_stream_is_not_shown() -> None:
    secret = "team-secret-77"
    error = {"type": "api_error", "message": f"bad header {KEY}, {secret}"}
    stream = Canned(sse({"type": "error", "error": error}))
    async with serving(stream) as server:
        for model in (
            anthropic(server, headers={"x-team": secret}),
            openai(server, headers={"x-team": secret}),
        ):
            with pytest.raises(ModelFailure, match=r"bad header \*\*\*, \*\*\*") as caught:
                await ask(model)
            is_ours(caught.value)
            assert KEY not in repr(caught.value)
            assert secret not in repr(caught.value)


@pytest.mark.anyio
@pytest.mark.parametrize("before", [0, 150, 180, 195, 300, 380, 5_000])
async def test_no_part_of_a_key_is_shown_where_a_long_text_is_cut(before: int) -> None:
    page = Canned(b"x" * before + KEY.encode() + b"y" * 500, 400, kind="text/plain")
    async with serving(page) as server:
        for model in (anthropic(server), openai(server)):
            with pytest.raises(BadRequest) as caught:
                await ask(model)
            assert KEY[:4] not in repr(caught.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "m", "type": "t"}}, "m"),
        ({"type": "error", "error": {"message": "two\n lines"}}, "two lines"),
        ({"object": "error", "message": "old vLLM", "code": 400}, "old vLLM"),
        ({"error": "model 'x' not found"}, "model 'x' not found"),
        ({"detail": "Not Found"}, "Not Found"),
        (
            {"detail": [{"msg": "field required", "loc": []}, {"msg": "and more"}]},
            "field required; and more",
        ),
        ("plain words", "plain words"),
        ({"error": None}, ""),
        ({"error": {"message": None}}, ""),
        ([1, 2], ""),
        (None, ""),
    ],
)
def test_an_error_is_read_in_every_usual_shape(body: Any, message: str) -> None:
    said = parse_error_body(WHO, body, status=400)
    assert said.message == message
    is_ours(openai_module.map_openai_error(said))


@pytest.mark.anyio
async def test_an_error_page_is_not_quoted() -> None:
    page = Canned(b"<html><body>nginx</body></html>", 502, kind="text/html")
    async with serving(page) as server:
        with pytest.raises(Overloaded, match="502") as caught:
            await ask(anthropic(server))
    assert "html" not in str(caught.value)


@pytest.mark.anyio
async def test_a_redirect_says_where_to_mend_it() -> None:
    async with serving(Canned(status=307, headers={"location": "/elsewhere"})) as server:
        with pytest.raises(BadRequest, match="ANTHROPIC_BASE_URL"):
            await ask(anthropic(server))


@pytest.mark.anyio
async def test_an_endless_error_is_not_read_to_its_end() -> None:
    async with serving(Canned(b"x" * 5_000_000, 500, kind="text/plain")) as server:
        with pytest.raises(Overloaded) as caught:
            await ask(anthropic(server))
    assert len(str(caught.value)) < 600


@pytest.mark.anyio
@pytest.mark.parametrize(("status", "kind"), [(200, BadReply), (400, BadRequest), (500, Overloaded)])
@pytest.mark.parametrize("coding", ["gzip", "gzip, gzip", "GZIP"])
async def test_a_packed_answer_is_not_unpacked_and_its_status_still_counts(
    status: int, kind: type[ModelFailure], coding: str
) -> None:
    packed = gzip.compress(b'{"error": {"message": "unpacked"}}')
    for _ in coding.split(", ")[1:]:
        packed = gzip.compress(packed)
    canned = Canned(packed, status, {"content-encoding": coding}, "application/json")
    async with serving(canned) as server:
        for model in (anthropic(server), openai(server)):
            with pytest.raises(kind) as caught:
                await ask(model)
            is_ours(caught.value)
            assert "unpacked" not in str(caught.value)
        assert {asked.headers["accept-encoding"] for asked in server.asked} == {"identity"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("start", "again"), [(b"data: ", b"x"), (b"{", b" "), (b"", b"\n")], ids=["line", "object", "blank"]
)
async def test_a_reply_without_an_end_is_given_up(start: bytes, again: bytes) -> None:
    endless = Canned(start, framing="close", again=again * 1_000_000, times=80)
    async with serving(endless) as server:
        for model in (anthropic(server), openai(server)):
            with pytest.raises(BadReply, match="more than 64 MB") as caught:
                await ask(model)
            is_ours(caught.value)


def test_an_empty_account_is_told_from_a_wrong_key() -> None:
    low = ServerRefusal(
        WHO, 400, "invalid_request_error", message="Your credit balance is too low to access"
    )
    assert "billing" in str(anthropic_module.map_anthropic_error(low))
    quota = ServerRefusal(WHO, 429, "insufficient_quota", "insufficient_quota", "You exceeded your quota")
    assert "billing" in str(openai_module.map_openai_error(quota))
    assert not openai_module.map_openai_error(quota).retryable


def test_a_missing_model_is_named() -> None:
    assert "'claude-x'" in str(
        anthropic_module.map_anthropic_error(ServerRefusal(WHO, 404, "not_found_error", model="claude-x"))
    )


# --- how long to wait ---------------------------------------------------------------------------------

DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "12"}, 12.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": DATE}, 30.0),
        ({"retry-after": DATE, "date": "Wed, 21 Oct 2026 07:29:00 GMT"}, 0.0),
        ({"retry-after": DATE}, 60.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 99 Foo 2026"}, None),
        ({}, None),
    ],
)
def test_the_wait_is_read_as_seconds_as_milliseconds_or_as_a_date(
    headers: dict[str, str], expected: float | None
) -> None:
    just_before = 1_792_567_680.0 - 60.0
    assert parse_retry_after(headers, lambda: just_before) == expected


@pytest.mark.anyio
@pytest.mark.parametrize(("status", "kind"), [(429, RateLimited), (529, Overloaded), (503, Overloaded)])
async def test_the_wait_that_a_server_asks_for_is_in_the_error(
    status: int, kind: type[ModelFailure]
) -> None:
    busy = json_body({"error": {"message": "slow down"}}, status, **{"retry-after": "7"})
    async with serving(busy) as server:
        for model in (anthropic(server), openai(server)):
            with pytest.raises(kind, match="slow down") as caught:
                await ask(model)
            assert caught.value.retry_after == 7.0
            assert caught.value.retryable


@pytest.mark.anyio
async def test_a_server_that_says_not_to_try_again_is_believed() -> None:
    final = json_body({"error": {"message": "monthly cap"}}, 429, **{"x-should-retry": "false"})
    async with serving(final) as server:
        with pytest.raises(RateLimited) as caught:
            await ask(anthropic(server))
    assert not caught.value.retryable
    assert RateLimited("x").retryable


@pytest.mark.anyio
async def test_nothing_is_tried_again_by_the_client_itself() -> None:
    async with serving(json_body({}, 500)) as server:
        for model in (anthropic(server), openai(server)):
            with pytest.raises(Overloaded):
                await ask(model, request_of())
        assert len(server.asked) == 2


# --- too long -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "tokens", "limit"),
    [
        ("prompt is too long: 210000 tokens > 200000 maximum", 210_000, 200_000),
        (
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease "
            "input length or `max_tokens` and try again",
            190_000,
            200_000,
        ),
        (
            "This model's maximum context length is 128000 tokens. However, your messages resulted in "
            "130049 tokens. Please reduce the length of the messages.",
            130_049,
            128_000,
        ),
        (
            "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens "
            "(112946 in the messages, 10000 in the completion).",
            112_946,
            16_384,
        ),
        (
            "This model's maximum context length is 2048 tokens. However, your request has 3000 input "
            "tokens. Please reduce the length of the input messages.",
            3_000,
            2_048,
        ),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context "
            "length is 4096 tokens and your request has 100 input tokens (5000 > 4096 - 100).",
            100,
            4_096,
        ),
        (
            "This endpoint's maximum context length is 131072 tokens. However, you requested about "
            "150000 tokens (149000 of text input, 1000 in the output).",
            149_000,
            131_072,
        ),
        (
            "You passed 5001 input tokens and requested 0 output tokens. However, the model's context "
            "length is only 4096 tokens.",
            5_001,
            4_096,
        ),
        ("The decoder prompt (length 5000) is longer than the maximum model length of 4096.", 5_000, 4_096),
        (
            "request (14429 tokens) exceeds the available context size (8192 tokens), try increasing it",
            14_429,
            8_192,
        ),
        (
            "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, "
            "Requested 40000.",
            40_000,
            30_000,
        ),
        ("Requested tokens (2285) exceed context window of 2048", 2_285, 2_048),
        ("Your input exceeds the context window of this model.", None, None),
        ("the input length exceeds the context length", None, None),
    ],
)
def test_a_prompt_that_is_too_long_is_recognised_however_it_is_said(
    message: str, tokens: int | None, limit: int | None
) -> None:
    for mapped in MAPS:
        error = mapped(ServerRefusal(WHO, 400, "invalid_request_error", message=message, model="m"))
        assert isinstance(error, PromptTooLong)
        assert (error.tokens, error.limit) == (tokens, limit)
        assert not error.retryable


def test_other_refusals_are_not_taken_for_it() -> None:
    for message in ("max_tokens: 99999 > 64000, which is the maximum allowed", "tools: too long a name"):
        said = ServerRefusal(WHO, 400, "invalid_request_error", message=message)
        assert type(anthropic_module.map_anthropic_error(said)) is BadRequest


@pytest.mark.anyio
async def test_the_numbers_of_llama_cpp_are_read_from_their_fields() -> None:
    said = {
        "code": 400,
        "type": "exceed_context_size_error",
        "message": "the request exceeds the available context size, try increasing it",
        "n_prompt_tokens": 14_429,
        "n_ctx": 8_192,
    }
    async with serving(json_body({"error": said}, 400), json_body({"error": said})) as server:
        model = openai(server)
        for _ in range(2):
            with pytest.raises(PromptTooLong, match="14,429 tokens, and 8,192 are allowed") as caught:
                await ask(model)
            assert (caught.value.tokens, caught.value.limit) == (14_429, 8_192)
