"""Message threads, as a client uses them: which messages the provider holds, and what is new.

The first request of a conversation is a `create` with all of it. A request that begins with what was sent
last, the reply included, byte for byte, is a `continue` with only the rest. Everything else is a `create`
again: a layer cleared or replaced something, a message was mended, the frame is another one.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import msgspec

from sevenfold.cache.prefix import find_last_request_end
from sevenfold.core.errors import BadRequest
from sevenfold.core.messages import Json
from sevenfold.core.request import Frame, Request, collect_pins, encode_message, encode_view
from sevenfold.core.transcript import Reply, View

THREADS_BETA: Final = "message-threads-2026-08-12"
KEPT: Final = 16  # Conversations whose last request is kept; an older one is sent whole again
UNSUPPORTED: Final = "thread_unsupported_request"


class ThreadRefused(BadRequest, kind="thread_refused"):
    """The provider refused a request because of its thread; `code` says why."""

    def __init__(self, message: str, *, code: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, retry_after=retry_after)
        self.code = code


def read_thread_refusal(error: BaseException) -> ThreadRefused | None:
    """The refusal in what a client raised; None: it was about something else."""
    if isinstance(error, ThreadRefused):
        return error
    body = getattr(error, "body", None)
    code = find_thread_code(body.get("error")) if isinstance(body, dict) else ""
    return ThreadRefused(str(error), code=code) if code else None


def find_thread_code(fields: Any) -> str:
    """The reason in the `error` of a refusal, if it is about a thread."""
    details = fields.get("details") if isinstance(fields, dict) else None
    code = details.get("error_code") if isinstance(details, dict) else None
    return code if isinstance(code, str) and code.startswith("thread_") else ""


class ThreadStep(msgspec.Struct, frozen=True):
    """What a request says about its thread, and how much of the view the provider holds already."""

    held: int = 0  # Messages of the view that are not sent
    previous: str = ""  # The id of the response that it continues
    is_replay: bool = False

    @property
    def field(self) -> Json:
        """The field `thread`."""
        if not self.held:
            return {"type": "create"}
        return {"type": "continue", "previous_message_id": self.previous}

    @property
    def kind(self) -> str:
        return "replay" if self.is_replay else str(self.field["type"])


class HeldConversation(msgspec.Struct, frozen=True):
    """The last request that was answered, with its reply."""

    frame: Frame
    fixed: Any
    messages: list[bytes]
    message_id: str


class ThreadTracker:
    """Chooses the `thread` of each request. One for a connection; each source is a conversation."""

    def __init__(self) -> None:
        self.replays = 0  # Threads that the provider did not have any more
        self.is_off = False  # The provider does not take threads
        self._held: OrderedDict[str, HeldConversation] = OrderedDict()

    def plan(self, request: Request, fixed: Any = None) -> ThreadStep | None:
        """The thread of this request; `fixed` is what else must stay the same. None: no threads."""
        if self.is_off:
            return None
        held = self._held.get(request.source)
        if held is None or held.frame != request.frame or held.fixed != fixed or _needs_old_mark(request):
            return ThreadStep()
        messages, count = encode_messages(request.view), len(held.messages)
        if len(messages) <= count or messages[:count] != held.messages:
            return ThreadStep()
        return ThreadStep(count, held.message_id)

    def record(self, request: Request, reply: Reply, fixed: Any = None) -> None:
        """The request was answered: the provider holds both."""
        self.forget(request.source)
        id = reply.diagnostics.get("message_id")
        if not id or not reply.message.says_something or reply.stop == "refusal":
            return
        messages = [*encode_messages(request.view), encode_message(reply.message)]
        self._held[request.source] = HeldConversation(request.frame, fixed, messages, str(id))
        if len(self._held) > KEPT:
            self._held.popitem(last=False)

    def forget(self, source: str) -> None:
        self._held.pop(source, None)

    def recover(self, source: str, step: ThreadStep, refused: ThreadRefused) -> ThreadStep | None:
        """The thread to try instead, None for none; raises the refusal if that would not help."""
        self.forget(source)
        if refused.code == UNSUPPORTED:
            self.is_off = True
            return None
        if not step.held:
            raise refused
        self.replays += 1
        return ThreadStep(is_replay=True)


def encode_messages(view: View) -> list[bytes]:
    """The bytes of each message with what is pinned behind it, without cache marks."""
    wires = encode_view(view)
    if not view.pins:
        return wires
    wires = list(wires)
    for after, payloads in collect_pins(view).items():
        if (place := view.where(after)) is not None:
            wires[place] += b"".join(
                b',{"role":"user","content":[' + payload + b"]}" for payload in payloads
            )
    return wires


def _needs_old_mark(request: Request) -> bool:
    """True if the cache is found only by a mark at the end of the last request, which is held."""
    old = find_last_request_end(request.view)
    return old is not None and request.view[old].id in request.breakpoints
