"""Cache breakpoints of a request, and the diagnosis of what it shares with the one before.

Breakpoints stand at the end, at the end of the last request, and at the frontier: the message before the
first one that a layer changed. What stands before the frontier is still cached, but only a mark near it
lets the provider find it. What stands behind it is written anew, without its marks, so a second mark stands
where the next change will probably begin.

Two more marks stand in the frame (end of the static system part, end of the system), so a request has
at most four. A provider looks back at most 20 blocks from a mark for a cached prefix; a step that adds
more would miss everything, so the old mark stays until the new one is cached.
"""

from __future__ import annotations

from itertools import chain, zip_longest
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.core.messages import THOUGHTS, Image, Message, ToolResult
from sevenfold.core.request import TTL_SECONDS, Frame, Request, encode_view
from sevenfold.core.tokens import MessageSize, add_sizes
from sevenfold.core.transcript import Id, Mark, PlacedMessage, View

LOOKBACK: Final = 18  # Two fewer than the provider's 20: pins and merged messages may add blocks


FRONTIER: Final = "cache.frontier"
"""A layer's mark: the messages where its changes began, where the next may begin, and the last one then."""
REMEMBERED: Final = 8  # Earlier frontiers that are kept; the prefix before each is still cached
MOST: Final = 3  # Marks on messages; one is left for the system prompt


def choose_breakpoints(view: View, *, writes: bool = True, sent: Id | None = None) -> tuple[Id, ...]:
    """The messages to mark. A request that must not write marks only what is cached already.

    `sent`: the end of a request before this one, where no reply in the view shows it.
    """
    items: list[PlacedMessage] = view.buffer.items
    new, old = len(view) - 1, find_last_request_end(view)
    if new < 0:
        return ()
    if sent is not None and (end := view.where(sent)) is not None:
        old = end if old is None else max(old, end)
    # Some models forget what they thought when something new is said: what stood before that is found here.
    said = old is not None and (
        not writes or any(_says_something(p.message) for p in items[old + 2 : new + 1])
    )
    thought = find_forgotten(view, old + 1) if said and old is not None else None
    earlier = {thought - 1} if thought else set[int]()
    if not writes:
        return tuple([items[at].id for at in sorted({old, *earlier})]) if old is not None else ()
    last = find_frontier(view)
    known = [at for at in last[-3:-1] or last if at < new]
    wanted = {new, *(known if view.edited else known[-1:])}
    if old is not None and len(wanted) < MOST:
        added = sum(len(placed.message.content) for placed in items[old + 1 : new + 1])
        wanted |= {old} if added > LOOKBACK else earlier
    return tuple([items[at].id for at in sorted(wanted)])


def find_frontier(view: View) -> list[int]:
    """The messages where changes began, where the next may begin, and the last one at the last change."""
    value = view.marks.get(FRONTIER)
    if value is None:
        return []
    where, end = view.buffer.where, len(view)
    ids = value if isinstance(value, list | tuple) else [value]
    return [where[id] for id in ids if isinstance(id, int) and where.get(id, end) < end]


def make_frontier_mark(view: View, first: int, then: int) -> Mark:
    """The mark for a change that begins at message `first`, the next one probably at message `then`."""
    before, (*known, end) = max(0, first - 1), find_frontier(view) or [0]
    if before < end:  # that was written in one request, and is cached at those messages alone
        before = max((at for at in known if at <= before), default=before)
    earlier = [at for at in known if at < before][-REMEMBERED:]
    places = (*earlier, before, max(before, then - 1), len(view) - 1)
    return Mark(FRONTIER, [view[at].id for at in places])


def find_last_request_end(view: View) -> int | None:
    """The last message of the request before this one: just before the newest reply of the model."""
    items: list[PlacedMessage] = view.buffer.items
    for at in range(len(view) - 1, 0, -1):
        if items[at].by == "model":
            return at - 1
    return None


def cut_to_cached(request: Request) -> Request:
    """The request with the part of its view that the provider has, if much came since the last request.

    A request beside the conversation pays in full for what is not in the cache yet, and the next request
    of the conversation pays for it again.
    """
    view = request.view
    sent = find_last_request_end(view)
    if sent is None:
        return request
    new = add_sizes(placed.size for placed in view.buffer.items[sent + 1 : len(view)])
    if view.calibration.tokens(new) <= SMALL:
        return request
    known = view.upto(sent + 1)
    return replace(request, view=known, sent=known[-1].id)


SMALL: Final = 1_500  # Tokens that may be sent twice, so that a fork has the last messages


class SentRequest(msgspec.Struct, frozen=True):
    """A request that was answered; the provider may still have it in its cache."""

    frame: Frame
    view: View
    at: float
    cached: int  # Tokens that were read from or written to the cache for it


class PrefixDiagnosis(msgspec.Struct, frozen=True):
    """The tokens of an earlier prefix that a request shares and loses, and the reason."""

    shared: int
    lost: int
    why: str = ""

    @property
    def is_by_rule(self) -> bool:
        """True if nothing was changed: what was added has this effect by the provider's rules."""
        return self.why in (FIRST_PICTURE, FORGOTTEN)


FIRST_PICTURE: Final = "the first picture: messages with and without one are cached apart"
FORGOTTEN: Final = "this model forgets what it thought when something new is said"


def diagnose_prefix(
    last: SentRequest,
    request: Request,
    now: float,
    kept_until: float | None = None,
    *,
    keeps_thinking: bool = True,
) -> PrefixDiagnosis:
    """Compare a request with the last one of its kind. Nothing lost: `why` is empty.

    `keeps_thinking`: False for a model that forgets its thinking when something new is said.
    """
    if not last.cached:
        return PrefixDiagnosis(0, 0)
    idle, ttl = now - last.at, TTL_SECONDS[last.frame.ttl]
    if idle > ttl and now > (kept_until or 0.0):
        why = f"idle for {_format_span(idle)}, kept for {_format_span(ttl)}"
        return PrefixDiagnosis(head := _count_kept_head(last, request, idle), last.cached - head, why)
    why, shared = _frame_change(last.frame, request.frame, last.cached)
    if not why:
        why, shared = _view_change(last, request.view, keeps_thinking)
    return PrefixDiagnosis(shared, max(0, last.cached - shared), why)


def _count_kept_head(last: SentRequest, request: Request, idle: float) -> int:
    """Tokens before the messages that outlive them in the cache."""
    frame = last.frame
    kept = idle <= TTL_SECONDS[frame.head_ttl] and frame == request.frame
    return min(last.view.calibration.tokens(frame.size), last.cached) if kept else 0


def _frame_change(old: Frame, new: Frame, cached: int) -> tuple[str, int]:
    """The change in front of the messages, and the tokens that stand before it."""
    if old is new:
        return "", cached
    if old.model != new.model:
        return f"the model changed from {old.model} to {new.model}", 0
    if old.tools != new.tools:
        return f"the tools changed: {_tools_change(old, new)}", 0
    tools = Frame(old.model, (), old.tools).tokens
    if old.system != new.system:
        return f"the system prompt changed in {_parts_change(old, new)}", tools
    keys = {*old.params, *new.params}
    if changed := ", ".join(sorted(k for k in keys if old.params.get(k) != new.params.get(k))):
        return f"request parameters changed: {changed}", old.tokens
    if (old.ttl, old.head_ttl) != (new.ttl, new.head_ttl):
        return f"the cache lifetime changed from {_format_lifetime(old)} to {_format_lifetime(new)}", 0
    return "", cached


def _format_lifetime(frame: Frame) -> str:
    head = f" ({frame.head_ttl} before the messages)" if frame.head_ttl != frame.ttl else ""
    return frame.ttl + head


def _tools_change(old: Frame, new: Frame) -> str:
    was = {str(t.get("name")): t for t in old.tools}
    now = {str(t.get("name")): t for t in new.tools}
    changes = [f"+{name}" for name in now if name not in was]
    changes += [f"-{name}" for name in was if name not in now]
    changes += [f"~{name}" for name in now if name in was and was[name] != now[name]]
    return ", ".join(changes) or "their order"


def _parts_change(old: Frame, new: Frame) -> str:
    parts = [str(i + 1) for i, (a, b) in enumerate(zip_longest(old.system, new.system)) if a != b]
    return f"part {', '.join(parts)}"


def _view_change(last: SentRequest, view: View, keeps_thinking: bool) -> tuple[str, int]:
    was, same = last.view, len(last.view)
    if was.buffer is not view.buffer or was.length > view.length:  # a buffer only grows
        pairs = enumerate(zip(encode_view(was), encode_view(view), strict=False))
        same = next((at for at, (a, b) in pairs if a != b), min(len(was), len(view)))
    if same < len(was):
        return f"message {same + 1} of {len(was)} changed", _count_shared(last, same)
    if view.pins[: len(was.pins)] != was.pins:
        return "a cache edit changed", last.cached
    new = [placed.message for placed in view.buffer.items[len(was) : len(view)]]
    if any(map(_has_picture, new)) and not any(_has_picture(placed.message) for placed in was):
        return FIRST_PICTURE, _count_shared(last, 0)
    said = not keeps_thinking and any(map(_says_something, new))
    if said and (at := find_forgotten(was, len(was))) is not None:
        return FORGOTTEN, _count_shared(last, at)
    return "", last.cached


def _count_shared(last: SentRequest, messages: int) -> int:
    """The cached tokens of the frame and so many messages."""
    was, frame = last.view, last.frame.tokens
    gone = sum((was[i].size for i in range(messages, len(was))), MessageSize())
    whole = max(1, was.calibration.tokens(was.size) + frame)
    share = (was.calibration.tokens(was.size - gone) + frame) / whole
    return int(last.cached * min(1.0, share))


def find_forgotten(view: View, end: int) -> int | None:
    """The first message with thinking since something was said last before `end`, if there is one."""
    first = None
    for at in range(end - 1, -1, -1):
        if _says_something(view[at].message):
            break
        first = at if any(isinstance(b, THOUGHTS) for b in view[at].message.content) else first
    return first


def count_kept_tokens(request: Request, *, keeps_thinking: bool) -> int:
    """The tokens of a request that are still read from the cache when something is said behind it."""
    view, sent = request.view, find_last_request_end(request.view)
    at = None if keeps_thinking or sent is None else find_forgotten(view, sent + 1)
    if at is None:
        return request.tokens
    lost = view.calibration.tokens(add_sizes(view[i].size for i in range(at, len(view))))
    return max(0, request.tokens - lost)  # parts are estimated one by one, and may come to more


def _says_something(message: Message) -> bool:
    return message.role == "user" and any(not isinstance(b, ToolResult) for b in message.content)


def _has_picture(message: Message) -> bool:
    inside = (
        b.content for b in message.content if isinstance(b, ToolResult) and not isinstance(b.content, str)
    )
    return any(isinstance(b, Image) for b in chain(message.content, *inside))


def _format_span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"
