"""Message threads: conversations that the provider holds between turns.

A request with `{"type": "create"}` in its field `thread` leaves its conversation here, under the id of the
response. One with `{"type": "continue", "previous_message_id": id}` has only the messages since then. A
response is continued once, in five minutes from the last request of its thread, with the same fixed fields.
Cache marks count in the request that sends them, so held messages have none; system prompt and tools keep
theirs.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

from sevenfold.models.threads import THREADS_BETA
from sevenfold.simulator.errors import ApiError, Json, make_invalid_request

LIFE: Final = 300.0  # Seconds from the last request of a thread
HELD_FIELDS: Final = ("system", "tools")  # Left out of a `continue`, or the same as in the `create`
SAME_FIELDS: Final = ("model", "thinking", "tool_choice", "output_config", "cache_control")
BETAS: Final = "anthropic-beta"
REPLAY: Final = 'replay the full conversation with `thread: {"type": "create"}`'


@dataclass(slots=True, eq=False)
class HeldThread:
    """One conversation, and what every request of it must have in common."""

    key: str
    fixed: Json
    head: Json  # The system prompt and the tools, as they were sent
    messages: list[Json] = field(default_factory=list)
    used: float = 0.0  # Time of its last request
    ids: list[str] = field(default_factory=list)  # Its responses; only the last one can be continued
    is_busy: bool = False  # A request that continues it has no response yet

    def complete(self, body: Json) -> Json:
        """The whole request: what is held, and the new messages."""
        new = body.get("messages")
        if not isinstance(new, list):
            raise make_invalid_request("messages: Input should be a valid list")
        return {**body, **self.head, "messages": [*self.messages, *new]}

    def check_fields(self, body: Json, betas: str) -> None:
        """Raise if a field that must stay the same is another one."""
        now = _read_fixed(body, betas)
        differ = [name for name, value in self.fixed.items() if now[name] != value]
        given = [name for name in HELD_FIELDS if body.get(name)]
        differ += [n for n in given if strip_marks(body[n]) != strip_marks(self.head.get(n))]
        if differ:
            raise _refusal(
                "thread_fingerprint_mismatch",
                "thread: a field that must stay the same across the turns of a thread differs. Differing "
                f"field(s): {', '.join(differ)}. Send the stored values, or {REPLAY} to change them.",
            )


class MessageThreads:
    """The threads of all keys."""

    def __init__(self) -> None:
        self._by_id: dict[str, HeldThread] = {}
        self._by_age: OrderedDict[int, HeldThread] = OrderedDict()  # The one used last stands last

    def __len__(self) -> int:
        return len(self._by_age)

    def open(self, body: Json, betas: str, key: str, now: float) -> HeldThread:
        """The thread that this request continues, or a new one. Raises the API's five errors."""
        _check_thread(body["thread"], betas)
        _check_support(body)
        if body["thread"]["type"] == "create":
            head = {name: body[name] for name in HELD_FIELDS if body.get(name) is not None}
            return HeldThread(key, _read_fixed(body, betas), head)
        previous = body["thread"]["previous_message_id"]
        thread = self._by_id.get(previous)
        if thread is None or thread.key != key or now > thread.used + LIFE:
            said = f"No thread state was found for `previous_message_id` {previous}: {REPLAY}."
            raise _refusal("thread_not_found", said, status=404)
        if previous != thread.ids[-1]:
            raise _refusal(
                "thread_already_continued",
                f"thread: the response {previous} has already been continued, and each response can be "
                "continued only once. Continue from the thread's most recent response.",
            )
        if thread.is_busy:
            raise _refusal(
                "thread_continue_in_flight",
                f"thread: another request is still continuing from {previous}. Wait for its response, or "
                f"{REPLAY}.",
            )
        thread.check_fields(body, betas)
        return thread

    def hold(self, thread: HeldThread, body: Json, reply: Json, now: float) -> None:
        """Keep the whole conversation of an answered request. Threads that have expired are forgotten."""
        thread.messages += [strip_marks(message) for message in body["messages"][len(thread.messages) :]]
        if reply["content"]:
            thread.messages.append({"role": "assistant", "content": reply["content"]})
        thread.ids.append(reply["id"])
        thread.used, thread.is_busy = now, False
        self._by_id[reply["id"]] = thread
        self._by_age.pop(id(thread), None)
        self._by_age[id(thread)] = thread
        while now > next(iter(self._by_age.values())).used + LIFE:
            _, old = self._by_age.popitem(last=False)
            for message_id in old.ids:
                del self._by_id[message_id]

    def find_conversation(self, message_id: str) -> list[Json]:
        """The conversation up to and including this response, the last one of its thread."""
        thread = self._by_id[message_id]
        assert thread.ids[-1] == message_id, f"{message_id} has been continued"
        return list(thread.messages)


def strip_marks(value: Any) -> Any:
    """Messages, blocks or tools without cache marks; what has none stays the same object."""
    if isinstance(value, list):
        stripped = [strip_marks(item) for item in value]
        same = all(new is old for new, old in zip(stripped, value, strict=True))
        return value if same else stripped
    if not isinstance(value, dict):
        return value
    content = value.get("content")
    inner = strip_marks(content) if isinstance(content, list) else content
    if inner is content and "cache_control" not in value:
        return value
    out = {name: item for name, item in value.items() if name != "cache_control"}
    return {**out, "content": inner} if "content" in out else out


def _read_fixed(body: Json, betas: str) -> Json:
    fixed = {name: body.get(name) for name in SAME_FIELDS}
    return {**fixed, BETAS: frozenset(part.strip() for part in betas.split(",") if part.strip())}


def _check_thread(thread: Any, betas: str) -> None:
    if THREADS_BETA not in betas:
        raise make_invalid_request("thread: Extra inputs are not permitted")
    if not isinstance(thread, dict):
        raise make_invalid_request("thread: Input should be a valid dictionary")
    kind = thread.get("type")
    if kind not in ("create", "continue"):
        raise make_invalid_request("thread.type: Input should be 'create' or 'continue'")
    known = {"type"} if kind == "create" else {"type", "previous_message_id"}
    for name in thread:
        if name not in known:
            raise make_invalid_request(f"thread.{kind}.{name}: Extra inputs are not permitted")
    previous = thread.get("previous_message_id", "")
    if kind == "continue" and "previous_message_id" not in thread:
        raise make_invalid_request("thread.continue.previous_message_id: Field required")
    if not isinstance(previous, str):
        raise make_invalid_request("thread.continue.previous_message_id: Input should be a valid string")


def _check_support(body: Json) -> None:
    """Raise for what would change the conversation behind the thread's back."""
    managed = body.get("context_management")
    edits = managed.get("edits") if isinstance(managed, dict) else None
    compacts = isinstance(edits, list) and any(
        isinstance(edit, dict) and str(edit.get("type")).startswith("compact_") for edit in edits
    )
    names = ["context_management"] if compacts else []
    names += ["fallbacks"] if body.get("fallbacks") else []
    if names:
        raise _refusal(
            "thread_unsupported_request",
            f"thread: not supported together with {', '.join(names)}. Send the full conversation without "
            "`thread`, or change that field.",
            unsupported=names,
        )


def _refusal(code: str, said: str, *, status: int = 400, unsupported: list[str] | None = None) -> ApiError:
    details: Json = {"error_code": code}
    if unsupported is not None:
        details["unsupported"] = unsupported
    return ApiError(status, said, details=details)
