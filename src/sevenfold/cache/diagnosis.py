"""Before a request goes out: what of the last one's prefix it keeps, what it loses, and why."""

from __future__ import annotations

from itertools import zip_longest

import msgspec

from sevenfold.messages import Json
from sevenfold.request import TTL_SECONDS, Frame, Request, encoded
from sevenfold.tokens import Size
from sevenfold.transcript import View


class Sent(msgspec.Struct, frozen=True):
    """A request that was answered: what the provider may still have of it."""

    frame: Frame
    view: View
    at: float
    cached: int
    """Tokens that were read from or written to the cache for it."""


class Diagnosis(msgspec.Struct, frozen=True):
    """How much of an earlier prefix a request shares, and what makes the difference."""

    shared: int
    lost: int
    why: str = ""


def diagnose(
    last: Sent, request: Request, now: float, kept_until: float | None = None
) -> Diagnosis:
    """Compare a request with the last one of its kind. Nothing lost: `why` is empty."""
    if not last.cached:
        return Diagnosis(0, 0)
    idle, ttl = now - last.at, TTL_SECONDS[last.frame.ttl]
    if idle > ttl and now > (kept_until or 0.0):
        why = f"idle for {_span(idle)}, kept for {_span(ttl)}"
        return Diagnosis(head := _head_kept(last, request, idle), last.cached - head, why)
    why, shared = _frame_change(last.frame, request.frame, last.cached)
    if not why:
        why, shared = _view_change(last, request.view)
    return Diagnosis(shared, max(0, last.cached - shared), why)


def _head_kept(last: Sent, request: Request, idle: float) -> int:
    """Tokens before the messages that outlive them in the cache."""
    frame = last.frame
    kept = idle <= TTL_SECONDS[frame.head_ttl] and frame == request.frame
    return min(last.view.calibration.tokens(frame.size), last.cached) if kept else 0


def _frame_change(old: Frame, new: Frame, cached: int) -> tuple[str, int]:
    """What changed in front of the messages, and how many tokens stand before the change."""
    if old is new:
        return "", cached
    if old.model != new.model:
        return f"the model changed from {old.model} to {new.model}", 0
    if old.tools != new.tools:
        return f"the tools changed: {_tools_change(old, new)}", 0
    tools = Frame(old.model, (), old.tools).tokens
    if old.system != new.system:
        return f"the system prompt changed in {_parts_change(old, new)}", tools
    changed = _keys_change(old.params, new.params)
    if changed:
        return f"request parameters changed: {changed}", old.tokens
    if (old.ttl, old.head_ttl) != (new.ttl, new.head_ttl):
        return f"the cache lifetime changed from {_lifetime(old)} to {_lifetime(new)}", 0
    return "", cached


def _lifetime(frame: Frame) -> str:
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


def _keys_change(old: Json, new: Json) -> str:
    return ", ".join(sorted(k for k in {*old, *new} if old.get(k) != new.get(k)))


def _view_change(last: Sent, view: View) -> tuple[str, int]:
    was = last.view
    if was.buffer is view.buffer and was.length <= view.length and _pins_grew(was, view):
        return "", last.cached  # the same growing buffer: nothing before its end can have changed
    same = 0
    for a, b in zip(encoded(was), encoded(view), strict=False):
        if a != b:
            break
        same += 1
    if same == len(was) and _pins_grew(was, view):
        return "", last.cached
    kept = sum((was[i].size for i in range(same)), Size())
    whole = max(1, was.calibration.tokens(was.size) + last.frame.tokens)
    share = (was.calibration.tokens(kept) + last.frame.tokens) / whole
    what = f"message {same + 1} of {len(was)}" if same < len(was) else "a cache edit"
    return f"{what} changed", int(last.cached * min(1.0, share))


def _pins_grew(was: View, view: View) -> bool:
    return view.pins[: len(was.pins)] == was.pins


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"
