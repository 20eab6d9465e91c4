"""From a name to a model, and the one sentence that helps when that does not work."""

from __future__ import annotations

import subprocess
import sys

import pytest
import rich.pretty
from models.asking import KEY

from sevenfold.core.errors import NoKey, UnknownModel
from sevenfold.core.protocols import Model
from sevenfold.models import ModelAccess, connect_model
from sevenfold.models.anthropic import AnthropicModel
from sevenfold.models.capabilities import is_loopback, parse_host
from sevenfold.models.openai import OpenAiModel

BOTH = ModelAccess(anthropic_key=KEY, openai_key=KEY)


def static_check() -> tuple[type[Model], ...]:
    return (AnthropicModel, OpenAiModel)


@pytest.mark.parametrize("name", ["claude-sonnet-4-5", " claude-opus-5-5[1m] ", "anthropic:claude-x"])
def test_a_plain_name_is_anthropics(name: str) -> None:
    model = connect_model(name, BOTH)
    assert isinstance(model, AnthropicModel)
    assert model.name == name.strip().removeprefix("anthropic:")


def test_a_prefix_chooses_the_other_format_and_stays_in_the_name() -> None:
    model = connect_model("openai:llama3:8b", BOTH)
    assert isinstance(model, OpenAiModel)
    assert model.name == "openai:llama3:8b"
    assert type(connect_model(model.name, BOTH)) is OpenAiModel


def test_offline_needs_nothing() -> None:
    assert connect_model("offline", ModelAccess()).name == "offline"


def test_without_a_key_the_variable_is_named_and_the_way_without_one() -> None:
    with pytest.raises(NoKey, match=r"ANTHROPIC_API_KEY.*model 'offline'"):
        connect_model("claude-sonnet-4-5", ModelAccess(openai_key=KEY))
    with pytest.raises(NoKey, match=r"OPENAI_API_KEY.*OPENAI_BASE_URL.*model 'offline'"):
        connect_model("openai:gpt-5", ModelAccess(anthropic_key=KEY))


def test_a_server_of_ones_own_needs_no_key_and_may_call_its_models_what_it_likes() -> None:
    own = ModelAccess(anthropic_base_url="http://127.0.0.1:1", openai_base_url="http://10.0.0.5:8000/v1")
    assert isinstance(connect_model("qwen3", own), AnthropicModel)
    assert isinstance(connect_model("openai:qwen3", own), OpenAiModel)


def test_a_bearer_token_is_a_key_too() -> None:
    assert isinstance(connect_model("claude-sonnet-4-5", ModelAccess(anthropic_token="t")), AnthropicModel)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("", "offline"),
        ("  ", "offline"),
        ("openai:", "openai:NAME"),
        ("anthropic:", "anthropic:NAME"),
        ("local:", "local:FILE.gguf"),
        ("local:a\x00b", "local:FILE.gguf"),
        ("gemini:pro", "openai:NAME"),
        ("claude sonnet", "claude-sonnet"),
        ("claude\x00", "offline"),
        ("gpt-5", "'openai:gpt-5'"),
        ("o3-mini", "'openai:o3-mini'"),
        ("ofline", "'offline'"),
        ("opus", "'claude-opus-"),
        ("sonnet-4-5", "'claude-sonnet-4-5'"),
        ("zzzz", "anthropic:NAME"),
    ],
)
def test_an_unknown_name_gets_a_hint(name: str, hint: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        connect_model(name, BOTH)
    assert hint in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("key", [f"{KEY}\n", f" {KEY}", "schlüssel", "a\x00b"])
def test_a_key_with_odd_characters_is_caught_before_it_is_sent_and_not_shown(key: str) -> None:
    for name, access in (
        ("claude-opus-4-5", ModelAccess(anthropic_key=key)),
        ("claude-opus-4-5", ModelAccess(anthropic_token=key)),
        ("openai:m", ModelAccess(openai_key=key)),
    ):
        with pytest.raises(NoKey, match="set it again") as caught:
            connect_model(name, access)
        assert key not in str(caught.value)
        assert KEY not in str(caught.value)


def test_nothing_that_prints_access_prints_a_key() -> None:
    access = ModelAccess(
        anthropic_key=KEY,
        anthropic_token=KEY,
        openai_key=KEY,
        headers={"x-team": KEY},
        anthropic_base_url=f"https://me:{KEY}@host/path",
    )
    model = connect_model("claude-opus-4-5", access)
    for shown in (repr(access), str(access), rich.pretty.pretty_repr(access), repr(model), f"{access}"):
        assert KEY not in shown
    assert "anthropic_key='set'" in repr(access)
    assert "x-team" in repr(access)
    assert "https://host/path" in repr(access)
    assert "openai_key='not set'" in repr(ModelAccess())


def test_what_is_on_this_machine_is_known() -> None:
    assert all(
        map(is_loopback, ("http://localhost:1", "http://127.0.0.1", "http://[::1]:8", "http://a.localhost"))
    )
    assert not any(
        map(
            is_loopback,
            ("http://127.0.0.1@x", "http://127.evil.example", "https://api.anthropic.com", "http://[", ""),
        )
    )
    assert parse_host("https://u:p@host:81/x") == "host:81"
    assert parse_host("nonsense") == "nonsense"


def test_a_server_on_this_machine_answers_one_request_at_a_time() -> None:
    for url, local in (("http://127.0.0.1:8080", True), ("https://models.example", False)):
        access = ModelAccess(anthropic_base_url=url, openai_base_url=f"{url}/v1")
        models = connect_model("qwen3", access), connect_model("openai:qwen3", access)
        assert [model.capabilities.one_at_a_time for model in models] == [local, local]


def test_importing_and_connecting_loads_nothing_heavy() -> None:
    code = (
        "import sys; from sevenfold.models import connect_model, ModelAccess;"
        "access = ModelAccess(anthropic_key='k', openai_key='k');"
        "connect_model('claude-opus-5-5', access); connect_model('openai:m', access);"
        "heavy = {'httpx', 'anthropic', 'openai', 'pydantic'} & set(sys.modules);"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8")
    assert (ran.returncode, ran.stderr) == (0, "")
