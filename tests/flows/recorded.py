"""A recorded session, carried out by a real `Session` and by a replay: what each does before each request.

The provider of the session is the simulator on loopback. It answers with the recorded replies, at their
times, and reports the tokens that the recording's provider would have counted; what layers ask beside the
conversation is answered by rule. Tools answer as recorded, and the files of the project follow them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from flows.wire import SteadySimulator
from msgspec.structs import replace

from benchmarks.ladder.run import BenchmarkClock, is_side_request
from sevenfold.cache.prices import Prices
from sevenfold.core.events import Cleared, Compacted, Event
from sevenfold.core.messages import (
    Block,
    Json,
    Message,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    make_wire_message,
)
from sevenfold.core.protocols import Change, Layers
from sevenfold.core.request import Frame, Request
from sevenfold.core.tokens import Pressure, Thresholds, Usage
from sevenfold.core.transcript import Entry, PlacedMessage, Reply, View
from sevenfold.layers.parts import LayerParts
from sevenfold.layers.shared.boundary import SPOKEN
from sevenfold.models.capabilities import find_capabilities
from sevenfold.offline import encode_reply
from sevenfold.replay.costs import compute_token_rates, estimate_size, find_session_price
from sevenfold.replay.driver import SessionDrive, make_policy_layers
from sevenfold.replay.policies import make_policy
from sevenfold.replay.stand_ins import SUMMARY_OUTPUT, ReplayDisk
from sevenfold.session.session import Session
from sevenfold.settings.layers import PolicyName
from sevenfold.settings.schema import make_settings
from sevenfold.simulator.script import ScriptReply
from sevenfold.tools.file_tools import EDIT_SCHEMA

ALONE = {"extraction": False, "recall": False, "dream": False, "micro_api": False}
"""Layers that need what a recording does not have."""
STORED = re.compile(r"\S*/tool-results/\S+")


@dataclass(frozen=True)
class SeenAction:
    """A layer acted before this request, counted from 0."""

    request: int
    what: str


@dataclass
class RequestWatch:
    """The last layer before each request: keeps what is sent, and what layers did before it."""

    views: list[View] = field(default_factory=list)
    actions: list[SeenAction] = field(default_factory=list)
    label: ClassVar[str] = "RequestWatch"

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Change]:
        self.views.append(request.view)
        return ()

    def note_event(self, event: Event) -> None:
        match event:
            case Compacted(by, trigger):
                self.actions.append(SeenAction(len(self.views), f"{by} ({trigger})"))
            case Cleared(by):
                self.actions.append(SeenAction(len(self.views), by))
            case _:
                pass

    def add_to(self, layers: Layers) -> Layers:
        return with_fields(layers, fit=(*layers.fit, self))


def describe_view(view: View) -> list[Any]:
    """The messages of a view as far as a session and a replay can agree on them.

    What a layer wrote is named by the layer alone, and what a session opens with is left out.
    """
    found = list[Any]()
    for placed in view:
        if placed.by in ("session", "hooks"):
            continue
        what = placed.by if placed.by not in SPOKEN else _describe_message(placed.message)
        if not (found and found[-1] == what and isinstance(what, str)):
            found.append(what)
    return found


def _describe_message(message: Message) -> tuple[Any, ...]:
    return (message.role, *filter(None, map(_describe_block, message.content)))


def _describe_block(block: object) -> tuple[Any, ...] | None:
    match block:
        case Text(text):
            return ("text", text)
        case Thinking(text):
            return ("thinking", text)
        case ToolUse(id, name, args):
            return ("use", id, name, args)
        case ToolResult() as result:
            return ("result", result.tool_use_id, STORED.sub("", result.text), result.is_error)
    return None


class RecordedConversation:
    """A recording and the project in which a session carries it out: the provider and the tools of it."""

    def __init__(self, entries: Sequence[Entry], folder: Path, window: int, fixed: int = 45_000) -> None:
        """`fixed`: the largest system prompt with tools that it can have had."""
        self.entries, self.window, self._fixed = entries, window, fixed
        self.folder, self.project = folder, folder / "project"
        self.project.mkdir()
        self.price = find_session_price(entries, Prices.load(), None)
        self.clock = BenchmarkClock(entries[0].at)
        self._counted = compute_token_rates(entries, fixed)
        self._rates = {_make_key(e.what): self._counted.rate(e.id) for e in entries}
        self._replies = [entry for entry in entries if isinstance(entry.what, Reply)]
        self._results = {
            result.tool_use_id: (result, entry.at)
            for entry in entries
            if isinstance(entry.what, Message)
            for result in entry.what.results
        }
        self._disk, self._last = ReplayDisk(), 0
        self._session: Session | None = None

    # --- as a replay ------------------------------------------------------------------------------------

    def replay(self, name: PolicyName) -> RequestWatch:
        watch, model = RequestWatch(), self.price.model
        policy = make_policy(name, make_settings({"policy": name, "flags": ALONE}))
        able = replace(find_capabilities(model), window=self.window)

        def make(parts: LayerParts) -> Layers:
            emit = parts.emit

            def tell(event: Event) -> None:
                watch.note_event(event)
                emit(event)

            return watch.add_to(make_policy_layers(policy, with_fields(parts, emit=tell)))

        drive = SessionDrive(
            self.entries,
            replace(policy, recorded_breaks=False),
            Frame(model, tools=({**EDIT_SCHEMA},), ttl="5m", system_ttl="1h"),
            Thresholds.of(able.window, able.max_output),
            self.price.price,
            layers=make,
            able=able,
            prices=self.price.prices,
            fixed=self._fixed,
        )
        drive.run()
        return watch

    # --- as a session -----------------------------------------------------------------------------------

    async def run_session(self, name: PolicyName) -> RequestWatch:
        watch, events = RequestWatch(), list[Event]()
        async with SteadySimulator(replies=self._answer, clock=self.clock, window=self.window) as simulator:
            simulator.events = events
            environ = {"HOME": str(self.folder), "PATH": "/usr/bin:/bin", "ANTHROPIC_API_KEY": "k"}
            environ["ANTHROPIC_BASE_URL"] = simulator.url
            async with Session(
                self.price.model,
                self.project,
                home=self.folder / "home",
                environ=environ,
                clock=self.clock,
                interactive=True,
                layers=watch.add_to,
                settings={"policy": name, "flags": ALONE, "window": self.window, "maxSteps": 1_000},
            ) as session:
                session.subscribe(events.append)
                session.subscribe(watch.note_event)
                session.turn.tools = self
                self._session = session
                for entry in self._questions():
                    assert isinstance(entry.what, Message)
                    self.clock.set(entry.at)
                    await session.ask(entry.what)
                    await session.tray.drain(60)
        return watch

    def _questions(self) -> Iterator[Entry]:
        """What the user says when the agent is at rest."""
        rests = True
        for entry in self.entries:
            if isinstance(entry.what, Reply):
                rests = not entry.what.message.tool_uses
            elif rests and isinstance(entry.what, Message):
                assert entry.by == "user", f"{entry.by} spoke"
                yield entry

    async def _answer(self, body: Json) -> ScriptReply | Sequence[Json]:
        if is_side_request(body):
            noting = '<directive kind="notes"' in str(body["messages"][-1])
            return encode_reply(body if noting else {**body, "max_tokens": SUMMARY_OUTPUT})
        assert self._session is not None
        await self._session.tray.drain(60)
        entry = self._replies[len(self._replies) - self._left]
        self._left -= 1
        assert isinstance(entry.what, Reply)
        prompt = self._count(self._session.view)
        self.clock.set(entry.at)
        read, self._last = min(self._last, prompt), prompt
        usage = {
            "input_tokens": 0,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": prompt - read,
            "output_tokens": entry.what.usage.output,
        }
        return ScriptReply(make_wire_message(entry.what.message)["content"], usage=usage)

    @cached_property
    def _left(self) -> int:
        return len(self._replies)

    def _count(self, view: View) -> int:
        """Tokens of a request by the rates of the recording, with its system prompt in place of ours."""
        shown = (placed for placed in view if placed.by not in ("session", "hooks"))
        return self._counted.fixed + sum(map(self._weigh, shown))

    def _weigh(self, placed: PlacedMessage) -> int:
        rate = self._rates.get(_make_key(placed.message), self._counted.usual)
        return round(estimate_size(placed.size) * rate)

    # --- the tools --------------------------------------------------------------------------------------

    def safe(self, use: ToolUse) -> bool:
        return False

    async def call(self, use: ToolUse) -> ToolResult:
        result, at = self._results[use.id]
        self.clock.set(at)
        self._disk.apply_call(use, result)
        path = use.input.get("file_path")
        if isinstance(path, str) and (text := self._disk.read(path)) is not None:
            self._write(Path(path), text)
        return result

    def _write(self, path: Path, text: str) -> None:
        assert path.is_relative_to(self.project)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _make_key(what: object) -> tuple[str, ...]:
    """A name for a message that the session's copy of it has too."""
    message = what.message if isinstance(what, Reply) else what
    if not isinstance(message, Message):
        return ()
    ids = [use.id for use in message.tool_uses] + [result.tool_use_id for result in message.results]
    return (message.role, *ids) if ids else (message.role, message.text)


def move_files(entries: Sequence[Entry], project: Path) -> list[Entry]:
    """The same recording with its files in this project."""

    def move_use(block: Block) -> Block:
        path = block.input.get("file_path") if isinstance(block, ToolUse) else None
        if not isinstance(block, ToolUse) or not isinstance(path, str):
            return block
        return replace(block, input={**block.input, "file_path": f"{project}/{path.lstrip('/')}"})

    def move(entry: Entry) -> Entry:
        if not isinstance(entry.what, Reply):
            return entry
        content = tuple(map(move_use, entry.what.message.content))
        return replace(entry, what=replace(entry.what, message=Message("assistant", content)))

    return list(map(move, entries))


def make_usage(prompt: int, output: int = 40) -> Usage:
    return Usage(cache_write=prompt, output=output)
