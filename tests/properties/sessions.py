"""Sessions that talk at random over a small window, with everything that was sent, told and written."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import Phase
from kit import extends
from layers.l4_compaction.summaries import summary

from sevenfold.core.errors import ContextFull, PromptTooLong
from sevenfold.core.events import Event, Sending
from sevenfold.core.messages import Message, Text, ToolUse, assistant
from sevenfold.core.protocols import Capabilities
from sevenfold.core.request import Request, encode_prefix, has_paired_tools
from sevenfold.core.transcript import Entry, Reply, Transcript
from sevenfold.session.session import Session
from sevenfold.storage.jsonl import read_log
from sevenfold.testing import FakeClock, ScriptedModel

SMALL = Capabilities(window=20_000, max_output=2_000)
UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
"""A smaller seed makes no smaller session."""
LONG = 8_000
"""Tokens from which the provider now and then says that it is too much."""
Said = str | Message | Reply
Beside = Callable[[Request], Said]


def kind_of(request: Request) -> str:
    return request.source.removeprefix("fork:")


def helpful(request: Request) -> Said:
    """What a model says to whatever it is asked beside the conversation."""
    last = request.view[-1].message
    if kind_of(request).startswith("compact"):
        return summary()
    found = re.search(r"(/\S+summary\.md)", last.text)
    if kind_of(request) == "notes" and found and not last.results:
        old = re.search(r"_What this session is about.*_", last.text)
        line = old.group() if old else "?"
        args = {"file_path": found[1], "old_string": line, "new_string": f"{line}\nA title"}
        return assistant(ToolUse("e1", "Edit", args))
    return "nothing to save"


class Talk:
    """A place, and one session after another in it that goes on with the same conversation."""

    def __init__(self, folder: Path, seed: int, beside: Beside = helpful) -> None:
        self.folder, self.rng, self.beside = folder, random.Random(seed), beside
        self.project, self.home = folder / "project", folder / "home"
        self.project.mkdir(parents=True)
        for n in range(3):
            text = f"line of file {n}\n" * self.rng.randint(5, 400)
            (self.project / f"f{n}.txt").write_text(text, encoding="utf-8")
        self.events: list[Event] = []
        self.requests: list[Request] = []
        self.calls, self._refused = 0, False
        self.id: str | None = None
        self.path = Path()

    def _line(self, request: Request) -> Said:
        self.requests.append(request)
        if request.source != "main":
            return self.beside(request)
        self.calls += 1
        kind = self.rng.choice(["say", "say", "read", "seq", "long"])
        if kind == "long" and request.view.tokens > LONG and not self._refused:
            self._refused = True
            raise PromptTooLong("too long")
        self._refused = False
        if kind in ("say", "long") or self.calls % 6 == 0:
            return "as you say " * self.rng.randint(1, 300)
        args = {"file_path": f"f{self.rng.randint(0, 3)}.txt"}
        if kind == "seq":
            args = {"command": f"seq {self.rng.randint(1, 9_000)}"}
        name = "Read" if kind == "read" else "Bash"
        return assistant(Text("looking"), ToolUse(f"u{self.calls}", name, args))

    @asynccontextmanager
    async def session(self, **settings: Any) -> AsyncIterator[Session]:
        model = ScriptedModel([self._line] * 500, SMALL)
        session = Session(
            model,
            self.project,
            home=self.home,
            environ={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"},
            settings={"permissions": {"allow": ["Bash(seq:*)"]}, **settings},
            clock=FakeClock(),
            resume=self.id,
            interactive=True,
        )
        session.subscribe(self.events.append)
        async with session:
            yield session
        if session.path.exists():
            self.id, self.path = session.id, session.path

    async def turns(self, session: Session, count: int) -> int:
        """How many of them came to an end; a window that nothing may make room in may be full."""
        done = 0
        for n in range(count):
            with suppress(ContextFull, PromptTooLong):
                await session.ask(f"question {n} " + "word " * self.rng.randint(1, 600))
                done += 1
            await session.tray.drain(10)
        return done

    # --- the laws -----------------------------------------------------------------------------------

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def main(self) -> list[Request]:
        return [request for request in self.requests if request.source == "main"]

    def check_laws(self) -> None:
        """Append-only, pairs, and what was sent stays as it was unless that was announced."""
        log = read_log(self.path)
        loaded = Transcript.load(log, lambda: 0.0)
        assert loaded.problems == []
        assert [entry.id for entry in loaded.entries] == sorted({e.id for e in loaded.entries})
        sent = [event for event in self.of(Sending) if event.source == "main"]
        for event in sent:
            assert not event.lost or event.expected, f"an unexpected loss: {event}"
        breaks = 0
        for request in self.requests:
            assert has_paired_tools(request.view)
        for before, after in pairwise(self.main):
            breaks += not extends(encode_prefix(before), encode_prefix(after))
        assert breaks <= sum(bool(event.why) for event in sent), "a break nobody announced"


def entries_of(path: Path) -> Sequence[Entry]:
    """The transcript as another process would read it."""
    return Transcript.load(read_log(path), lambda: 0.0).entries
