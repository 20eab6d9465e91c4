"""One conversation of a client: layers decide on a copy, its own bytes go out where they may.

What no layer changed is sent as the client wrote it. A request that does not begin like the one before it,
without a reason on record, is not ours to send: the client's own goes out instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import is_
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw

from sevenfold.context.context import Context
from sevenfold.context.formats import WireFormat, encode_canonical, strip_cache_marks
from sevenfold.core.events import Added, CacheBroke, Cleared, Compacted, Event, Failed, Stored
from sevenfold.core.messages import Json, Message
from sevenfold.core.protocols import Clock
from sevenfold.core.request import TTL_SECONDS
from sevenfold.core.tokens import MessageSize, Usage, add_sizes, measure_message
from sevenfold.core.transcript import Reply
from sevenfold.proxy.body import (
    NO_RAW,
    ClientBody,
    RelayedMessages,
    UntouchedRequest,
    decode_raw,
    encode_message,
    find_marked,
    replace_messages,
)
from sevenfold.settings.layers import CLEARABLE

OFF: Final = {
    "notes": False, "recall": False, "extraction": False, "dream": False, "pre_cold": False,
    "precompute": False, "micro_cache_edit": False,
}  # fmt: skip
"""Flags of layers that a proxy does not have: it never asks a model, and changes no prompt."""
NO_LAYER: Final = {
    **OFF, "tool_results": False, "micro_cost": False, "micro_time": False, "compact": False,
    "reactive": False, "collapse": False, "snip": False,
}  # fmt: skip
"""Flags for a client that could not read back what was cleared: only accounts are kept."""


NEW_THREAD: Final = Raw(b'{"type":"create"}')
MARKED: Final = 4
"""Messages at the end among which a client's cache marks on messages stand."""


def make_relay_settings(readers: Sequence[str]) -> Json:
    """The settings of layers between a client and its provider; `readers` are its tools that read files."""
    if not readers:
        return {"flags": NO_LAYER}
    tools = [*CLEARABLE, *(name for name in readers if name not in CLEARABLE)]
    return {"flags": OFF, "micro": {"tools": tools}, "compaction": {"bySize": False}}


class PrefixLost(UntouchedRequest, kind="prefix_lost"):
    """A request of ours does not begin like the last one, and nothing says why."""


class OutgoingBody(msgspec.Struct, frozen=True):
    """The body to send, and what it is to be compared with."""

    data: bytes
    shortened: bool  # False: these are the client's own bytes
    acts: tuple[str, ...] = ()  # What the layers did for this request
    breaks: bool = False  # Among it something that changed what had been sent before
    failures: tuple[str, ...] = ()  # Layers that failed; the request went on without them
    hidden: int = 0  # Tokens that the client sent and we do not, estimated


class RelayedConversation:
    """A conversation that passes through. Not for two requests at the same moment."""

    def __init__(
        self,
        id: str,
        model: str,
        form: WireFormat,
        *,
        state: Path,
        home: Path,
        results: Callable[[], Path],
        readers: Sequence[str],
        environ: Mapping[str, str],
        clock: Clock,
    ) -> None:
        """`readers` are the client's tools that can read a file; without any nothing is ever cleared."""
        self.id, self._form, self._clock = id, form, clock
        self.context = Context(
            model,
            state=state,
            id=id,
            format=form,
            results=results,
            settings=make_relay_settings(readers),
            home=home,
            clock=clock,
            environ=environ,
        )
        self.context.subscribe(self._hear)
        self._events: list[Event] = []
        self._raws: list[Raw] = []
        self._said: list[Json] = []
        self._written: list[Json] = []
        self._frame: dict[str, tuple[Raw, Any]] = {}
        self._encoded: dict[int, tuple[Json, bytes]] = {}
        self._hidden = MessageSize()
        self._turn = 0
        self.waiting = 0  # Requests whose replies are still to come: it stays open for them
        self._direct = DirectCache(isinstance(form, RelayedMessages))

    def _hear(self, event: Event) -> None:
        if isinstance(event, Added | CacheBroke | Cleared | Compacted | Failed | Stored):
            self._events.append(event)

    def close(self) -> None:
        self.context.close()

    # --- out --------------------------------------------------------------------------------------------

    def shorten(self, data: bytes, body: ClientBody, held: int = 0) -> OutgoingBody:
        """The body to send. Whatever is raised here, the client's own bytes are still right.

        `held` messages at the beginning are the provider's already, in a thread: `data` has the others.
        """
        said = self._read_messages(body.messages)
        self._events.clear()
        written: list[Json] = self.context.prepare(
            said,
            system=self._read_field("system", body.system),
            tools=self._read_field("tools", body.tools),
            model=body.model,
            **body.read_params(),
        )["messages"]
        heard = self._events
        breaks = any(isinstance(event, Cleared | Compacted) for event in heard)
        extends = self._leads_to(written)
        if not extends and not breaks and not any(isinstance(event, Added) for event in heard):
            raise PrefixLost(self._describe_difference(written))
        acts = tuple(act for event in heard if (act := describe_act(event)))
        failures = tuple(f"{e.by} failed: {name_error(e.cause)}" for e in heard if isinstance(e, Failed))
        self._raws, self._said, self._written = body.messages, said, written
        self._turn += 1
        if len(written) == len(said) and all(map(is_, written, said)):
            self._encoded, self._hidden = {}, MessageSize()
            return OutgoingBody(data, False, acts, breaks, failures)
        if heard or not extends:
            self._hidden = self._measure_hidden()
        hidden = max(0, self.context.view.calibration.tokens(self._hidden))
        messages = self._list_outgoing(body)
        if not held:
            whole = replace_messages(data, body.messages, messages, body.listed)
        elif extends:  # what the provider holds is still right
            new = len(said) - held
            same = all(map(is_, written[-new:], said[-new:]))
            whole = data if same else replace_messages(data, body.messages[-new:], messages[-new:])
        else:
            fields = {"system": body.system, "tools": body.tools, "thread": NEW_THREAD}
            others = {name: raw for name, raw in fields.items() if raw is not NO_RAW}
            whole = replace_messages(data, body.messages[held:], messages, others=others)
        return OutgoingBody(whole, True, acts, breaks, failures, hidden)

    @property
    def turn(self) -> int:
        """Counts requests: a reply is recorded only if no other request has gone out since."""
        return self._turn

    def _read_messages(self, raws: Sequence[Raw]) -> list[Json]:
        """The messages without marks; one that is as it was last time is the same object again."""
        old, known = self._raws, self._said
        same = max(0, len(old) - MARKED)
        said = known[:same] if same and raws[:same] == old[:same] else []
        for at, raw in enumerate(raws[len(said) :], len(said)):
            if at < len(old) and raw == old[at]:
                said.append(known[at])
                continue
            message = decode_raw(raw)
            if not isinstance(message, dict):
                raise UntouchedRequest(f"messages[{at}] is no object")
            message = strip_cache_marks(message)
            is_known = at < len(known) and _is_equal(message, known[at])
            said.append(known[at] if is_known else message)
        return said

    def _leads_to(self, written: list[Json]) -> bool:
        """True if the messages of the last request lead these."""
        last = self._written
        return written[: len(last)] == last or (
            len(written) >= len(last) and all(map(_is_equal, last, written))
        )

    def _read_field(self, name: str, raw: Raw) -> Any:
        last = self._frame.get(name)
        if last is None or last[0] != raw:
            last = self._frame[name] = raw, decode_raw(raw)
        return last[1]

    def _describe_difference(self, written: list[Json]) -> str:
        pairs = enumerate(zip(self._written, written, strict=False))
        at = next((at for at, pair in pairs if not _is_equal(*pair)), len(written))
        return f"messages[{at}] differs from the last request and nothing says why"

    def _list_outgoing(self, body: ClientBody) -> list[bytes | Raw]:
        """The messages to send: the client's bytes, except where a layer wrote others."""
        raws, written = body.messages, self._written
        places = dict(zip(map(id, self._said), raws, strict=True))
        wires: list[bytes | Raw | None] = list(map(places.get, map(id, written)))
        encoded: dict[int, tuple[Json, bytes]] = {}
        last = len(written) - MARKED  # marks on these move on with the next request
        marked = find_marked(raws[-MARKED:]) if None in wires[last:] else ()
        for at, message in enumerate(written):
            if wires[at] is not None:
                continue
            known = self._encoded.get(id(message))
            if at >= last:
                wires[at] = encode_message(message, marked)
            elif known is not None and known[0] is message:
                encoded[id(message)], wires[at] = known, known[1]
            else:
                wires[at] = wire = encode_message(message)
                encoded[id(message)] = message, wire
        self._encoded = encoded
        return [wire for wire in wires if wire is not None]

    def _measure_hidden(self) -> MessageSize:
        """The size of what the client sent and is not sent on, less what stands in its place."""
        kept = set(map(id, self._written)) & set(map(id, self._said))
        gone, shown = (
            add_sizes(self._measure(message) for message in messages if id(message) not in kept)
            for messages in (self._said, self._written)
        )
        return gone - shown

    def _measure(self, message: Json) -> MessageSize:
        spoken = self._form.decode_message(message, "a message")
        return measure_message(Message(spoken.role, spoken.blocks))

    # --- back -------------------------------------------------------------------------------------------

    def record(self, turn: int, reply: Reply) -> CacheBroke | None:
        """Take in the reply to the request of this turn; returns the cache break that it shows."""
        if turn != self._turn:
            return None
        self._events.clear()
        self.context.record(reply)
        return next((event for event in self._events if isinstance(event, CacheBroke)), None)

    def refuse(self, turn: int, error: BaseException) -> None:
        """Take in the provider's refusal: one for length makes the next request shorter."""
        if turn == self._turn:
            self.context.refused(error)

    def estimate_direct(self, out: OutgoingBody, usage: Usage) -> Usage:
        """The usage of the same request without the proxy."""
        ttl = TTL_SECONDS["1h" if usage.cache_write_1h else "5m"]
        return self._direct.estimate(usage, out.hidden, out.breaks, self._clock.now(), ttl)

    def is_overfull(self, direct: Usage) -> bool:
        """True if the client's own request would not have fit the window."""
        return direct.prompt > self.context.model.capabilities.window


class DirectCache:
    """Follows what the provider's cache would hold if the client's own requests had been sent."""

    def __init__(self, by_marks: bool) -> None:
        """`by_marks`: the provider keeps what the client marks; others keep every prompt by themselves."""
        self._by_marks = by_marks
        self._kept = self._kept_direct = 0  # Tokens in the cache after the last request: ours, the client's
        self._at = 0.0

    def estimate(self, usage: Usage, hidden: int, breaks: bool, now: float, ttl: float) -> Usage:
        """The usage of the whole request: what we lost by a change, the client's own would have read."""
        kept = usage.cache_read + usage.cache_write if self._by_marks else usage.prompt
        whole = kept + hidden if kept else 0
        if not self._kept:  # nothing to compare with: the hidden part is read if anything is
            read = usage.cache_read + (hidden if usage.cache_read else 0)
        elif breaks and now - self._at <= ttl:
            read = self._kept_direct
        else:
            read = round(self._kept_direct * min(1.0, usage.cache_read / self._kept))
        read = min(max(read, usage.cache_read), whole)
        self._kept, self._kept_direct, self._at = kept, whole, now
        if not hidden and not breaks:
            return usage
        if not self._by_marks or not kept:
            fresh = usage.prompt + hidden - read
            counted = fresh - usage.input if usage.cache_write else 0  # some charge for what they keep
            return Usage(fresh - counted, counted, read, usage.output)
        written = whole - read
        hour = round(written * usage.cache_write_1h / usage.cache_write) if usage.cache_write else 0
        return Usage(usage.input, written, read, usage.output, hour)


def name_error(cause: str) -> str:
    """The class of an error that is given by its `repr`; the rest might quote the body."""
    name = cause.partition("(")[0]
    return name if name.isidentifier() else "an error"


def describe_act(event: Event) -> str:
    """What a layer did, in words; empty for other events."""
    match event:
        case Cleared():
            return event.why
        case Compacted():
            return (
                f"layer 4 compacted by {event.by}: {event.tokens_before:,} to {event.tokens_after:,} tokens"
            )
        case Stored():
            return f"layer 1 stored a result of {event.tool}, {event.why}"
    return ""


def _is_equal(a: Json, b: Json) -> bool:
    """True for the same content: clients write a text alone, too, when they move their mark from it."""
    return a is b or a == b or encode_canonical(a) == encode_canonical(b)
