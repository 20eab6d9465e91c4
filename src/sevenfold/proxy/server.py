"""The proxy: takes a client's requests on loopback, lets the layers shorten them, relays the replies.

Whatever goes wrong on our side, the client's own bytes go through, and one line of the log says so.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import anyio
import h11
import msgspec

from sevenfold.cache.prices import Prices
from sevenfold.context.formats import WireFormat
from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import FromTheFuture, Mistake, SessionBusy, SevenfoldError, StorageFailure
from sevenfold.core.events import CacheBroke
from sevenfold.core.protocols import Clock
from sevenfold.core.tokens import Usage
from sevenfold.loopback import GONE, SURPRISES, ConnectionCut, HttpAnswer, HttpCall, LoopbackServer
from sevenfold.proxy.body import ClientBody, UntouchedRequest, choose_format, read_body_of
from sevenfold.proxy.conversation import OutgoingBody, RelayedConversation
from sevenfold.proxy.conversations import KEPT_DAYS, ConversationStore
from sevenfold.proxy.keys import find_key, list_reading_tools, list_tools
from sevenfold.proxy.receipt import Receipt, ReceiptRow
from sevenfold.proxy.replies import ReplyCopy
from sevenfold.proxy.threads import ThreadCopies, is_continued
from sevenfold.proxy.upstream import Upstream, select_answer_headers

if TYPE_CHECKING:
    import httpx

FOLDER: Final = "proxy"  # Under the home of Sevenfold
LEDGER: Final = "/sevenfold/ledger"
SAID: Final = b"x-sevenfold"
"""The header of an answer that says what was done: `unchanged`, `shortened`, or `passed` and why."""
BAD_GATEWAY: Final = 502
KINDS: Final = {
    400: "invalid_request_error", 403: "permission_error", 404: "not_found_error", BAD_GATEWAY: "api_error"
}  # fmt: skip
UNEXPLAINED: Final = "nothing changed here"
"""The end of a reason that the ledger gives when it has none."""
_TROUBLE: Final = (SevenfoldError, OSError, msgspec.MsgspecError, AssertionError, *SURPRISES)


class PlannedRequest(msgspec.Struct, kw_only=True):
    """A request of a client, and what goes out for it."""

    form: WireFormat | None = None  # None: it is not read at all
    model: str = ""
    body: ClientBody | None = None  # With all messages, also of a request that continues a thread
    out: OutgoingBody
    conversation: RelayedConversation | None = None
    turn: int = 0
    passed: str = ""
    milliseconds: float = 0.0

    def count_waiting(self, change: int) -> None:
        """Keep the conversation open while its reply is to come."""
        if self.conversation is not None:
            self.conversation.waiting += change

    @property
    def note(self) -> bytes:
        """What was done, for the header of the answer."""
        said = "shortened" if self.out.shortened else "unchanged"
        if self.passed:
            said = f"passed: {self.passed}"
        return "".join(c if c.isascii() and c.isprintable() else "?" for c in said)[:200].strip().encode()


class Proxy:
    """The proxy, served.

    async with Proxy(Upstream(url, url), home=home, claude=Path("~/.claude")) as proxy:
        client = AsyncAnthropic(base_url=proxy.url)
    """

    def __init__(
        self,
        upstream: Upstream,
        *,
        home: Path,
        claude: Path,
        environ: Mapping[str, str],
        prices: Prices | None = None,
        port: int = 0,
        clock: Clock | None = None,
        log: Callable[[str], object] = lambda line: None,
        days: float = KEPT_DAYS,
    ) -> None:
        """A conversation that nobody has gone on with for so many `days` is removed."""
        self._clock = clock or SystemClock()
        self.upstream, self._log = upstream, log
        self.conversations = ConversationStore(
            home / FOLDER, home=home, claude=claude, environ=environ, clock=self._clock, days=days
        )
        self.receipt = Receipt(prices or Prices.load())
        self._threads = ThreadCopies()
        self._server = LoopbackServer(self._answer, port=port, name="The proxy")

    @property
    def url(self) -> str:
        return self._server.url

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.__aexit__(kind, error, trace)
        await self.upstream.__aexit__(kind, error, trace)
        self.conversations.close()

    async def _answer(self, call: HttpCall) -> HttpAnswer:
        if foreign := self._server.describe_foreign_sender(call):
            return _complain(403, foreign)
        if f"{call.path}/".startswith("/sevenfold/"):
            if call.method == "GET" and call.path == LEDGER:
                told = msgspec.json.encode(self.receipt.as_json())
                return HttpAnswer(200, {"content-type": "application/json"}, told)
            return _complain(404, f"Not found: {call.path}")
        try:
            url = self.upstream.locate(call)
        except Mistake as error:
            return _complain(400, str(error))
        plan = self._plan(call)
        plan.count_waiting(1)
        try:
            response = await self._send(call, plan)
        except ConnectionCut:
            plan.count_waiting(-1)
            raise
        except _list_transport_troubles() as error:
            why = f"{type(error).__name__} on the way to {url.partition('?')[0]}"
            plan.count_waiting(-1)
            self._log(f"the provider cannot be reached: {why}")
            self._add_row(call, plan, BAD_GATEWAY, Usage())
            return _complain(BAD_GATEWAY, f"The provider cannot be reached: {why}")
        headers = [*select_answer_headers(response), (SAID, plan.note)]
        chunks = self._relay(call, plan, response)
        await anext(chunks)  # from here on it closes the response, even if nobody reads it
        return HttpAnswer(response.status_code, headers, chunks)

    # --- out --------------------------------------------------------------------------------------------

    def _plan(self, call: HttpCall) -> PlannedRequest:
        own = OutgoingBody(call.body, False)
        form = choose_format(call.path) if call.method == "POST" else None
        if form is None:
            return PlannedRequest(out=own)
        began = perf_counter()
        plan = PlannedRequest(form=form, out=own)
        try:
            self._shorten(call, form, plan)
        except _TROUBLE as error:
            plan.out, plan.passed = own, _describe_trouble(error)
            if plan.conversation is not None:
                self.conversations.drop(plan.conversation)
                plan.conversation = None
        for line in (plan.passed and f"passed through as it came: {plan.passed}", *plan.out.failures):
            if line:
                self._log(line)
        plan.milliseconds = (perf_counter() - began) * 1_000
        return plan

    def _shorten(self, call: HttpCall, form: WireFormat, plan: PlannedRequest) -> None:
        """Fill in the plan; what is raised on the way leaves the client's bytes as they are."""
        if call.rest is not None:
            raise UntouchedRequest("the body is over 32 MB")
        if call.headers.get("content-encoding", "identity") != "identity":
            raise UntouchedRequest("the body is compressed")
        body = read_body_of(form, call.body)
        if body is None:
            return
        plan.model, new = body.model, len(body.messages)
        if continued := is_continued(body):
            whole = self._threads.complete(body)
            if whole is None:
                raise UntouchedRequest("it continues a thread whose beginning was not seen here")
            body = whole
        plan.body = body
        tools = list_tools(body)
        if not tools or not body.messages:
            return  # a title, a summary, a count: not the conversation
        key = find_key(call.headers, body, tools)
        readers = list_reading_tools(tools)
        plan.conversation = conversation = self.conversations.find(key, body, form, readers)
        plan.out = conversation.shorten(call.body, body, len(body.messages) - new if continued else 0)
        plan.turn = conversation.turn

    async def _send(self, call: HttpCall, plan: PlannedRequest) -> httpx.Response:
        """Send it, unless the client goes away before an answer has begun."""
        answered: list[httpx.Response] = []
        failed: list[Exception] = []
        # Also those of the client: httpx reads the rest of a large body from it.
        troubles: tuple[type[Exception], ...] = (
            *_list_transport_troubles(),
            *GONE,
            h11.RemoteProtocolError,
        )

        async def send() -> None:
            try:
                answered.append(await self.upstream.send(call, plan.out.data))
            except troubles as error:
                failed.append(error)
            group.cancel_scope.cancel()

        async def leave() -> None:
            await call.wait_for_goodbye()
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            if call.rest is None:
                group.start_soon(leave)
        if failed:
            raise failed[0]
        if not answered:
            raise ConnectionCut
        return answered[0]

    # --- back -------------------------------------------------------------------------------------------

    async def _relay(
        self, call: HttpCall, plan: PlannedRequest, response: httpx.Response
    ) -> AsyncGenerator[bytes, None]:
        """The body as it arrives, byte for byte; the reply is read from a copy."""
        import httpx

        status = response.status_code
        copy = ReplyCopy(plan.form, plan.model, status, response.headers) if plan.form else None
        try:
            yield b""
            async for chunk in response.aiter_raw():
                if copy is not None:
                    copy.feed(chunk)
                yield chunk
        except (httpx.HTTPError, httpx.StreamError) as error:
            self._log(f"the provider's answer was cut: {type(error).__name__}")
            raise ConnectionCut from error
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()
            plan.count_waiting(-1)
            if copy is not None:
                self._conclude(call, plan, status, copy)

    def _conclude(self, call: HttpCall, plan: PlannedRequest, status: int, copy: ReplyCopy) -> None:
        """Record the reply and add a row to the receipt; the client has its answer already."""
        reply, conversation = copy.read_reply(), plan.conversation
        usage = reply.usage if reply else Usage()
        if reply is not None and plan.body is not None:
            self._threads.hold(plan.body, reply)
        try:
            if conversation is None:
                self._add_row(call, plan, status, usage)
            elif reply is None:
                if copy.error_text:
                    conversation.refuse(plan.turn, ProviderRefusal(status, copy.error_text))
                self._add_row(call, plan, status, usage)
            else:
                broke = conversation.record(plan.turn, reply)
                direct = conversation.estimate_direct(plan.out, usage)
                self._add_row(call, plan, status, usage, direct, broke)
        except _TROUBLE as error:
            self._log(f"the reply could not be recorded: {_describe_trouble(error)}")
            self._add_row(call, plan, status, usage)
            if conversation is not None:
                self.conversations.drop(conversation)

    def _add_row(
        self,
        call: HttpCall,
        plan: PlannedRequest,
        status: int,
        usage: Usage,
        direct: Usage | None = None,
        broke: CacheBroke | None = None,
    ) -> None:
        if plan.form is None:
            return
        self.receipt.add(
            ReceiptRow(
                at=self._clock.now(),
                conversation=plan.conversation.id if plan.conversation else "",
                model=plan.model,
                status=status,
                received=len(call.body),
                sent=len(plan.out.data),
                shortened=plan.out.shortened,
                usage=usage,
                direct=direct or usage,
                overfull=bool(direct and plan.conversation and plan.conversation.is_overfull(direct)),
                milliseconds=round(plan.milliseconds, 3),
                acts=plan.out.acts,
                broke=broke.why if broke else "",
                explained=broke is None or broke.expected or not broke.why.endswith(UNEXPLAINED),
                passed=plan.passed,
            )
        )


class ProviderRefusal(Exception):
    """An error that the provider answered with, in the shape in which `Context.refused` reads one."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status_code = status
        try:
            self.body: object = msgspec.json.decode(text)
        except msgspec.MsgspecError:
            self.body = None


def _describe_trouble(error: BaseException) -> str:
    """The reason in one line: of these errors their own words, all others might quote the body."""
    if isinstance(error, UntouchedRequest | StorageFailure | SessionBusy | FromTheFuture):
        return " ".join(str(error).split())
    if isinstance(error, SevenfoldError | msgspec.MsgspecError):
        return "the body is not a request that we know"
    return f"{type(error).__name__} in the proxy"


def _list_transport_troubles() -> tuple[type[Exception], ...]:
    """The errors of a request that did not reach the provider, or whose answer did not begin."""
    import httpx

    return (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, *SURPRISES)


def _complain(status: int, why: str) -> HttpAnswer:
    """An error of the proxy's own, in the shape that clients of both APIs read."""
    body = {"type": "error", "error": {"type": KINDS[status], "message": f"sevenfold proxy: {why}"}}
    return HttpAnswer(status, {"content-type": "application/json"}, msgspec.json.encode(body))
