"""The user's hooks around every kind of compaction, and what they add: asked once, heard at once."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from layers.l3_session_memory.noting import described
from layers.l4_compaction.summaries import summary
from layers.l4_compaction.test_server_compaction import ABLE, reply_with
from layers.l4_compaction.test_server_compaction import summary as block
from msgspec.structs import replace

from sevenfold.core.errors import ContextFull
from sevenfold.core.events import Compacted, Event, Notice
from sevenfold.core.messages import Message, ToolUse, assistant
from sevenfold.core.protocols import Capabilities
from sevenfold.core.request import Request
from sevenfold.core.transcript import Reply
from sevenfold.session.session import Session
from sevenfold.testing import ScriptedModel

pytestmark = pytest.mark.anyio
SMALL = Capabilities(window=32_000, max_output=2_000)
TITLE = "The tale of the parser"


class Mind:
    """Answers at length, keeps notes when it is asked to, and sums up."""

    def __init__(self, able: Capabilities = SMALL, notes: bool = True) -> None:
        self.notes, self.noted, self.asked = notes, 0, list[str]()
        self.model = ScriptedModel([self._line] * 400, able)

    def _line(self, request: Request) -> Message | Reply | str:
        if request.source == "main":
            return "words and more words to fill the window " * 40
        self.asked.append(request.source)
        last = request.view[-1].message
        if request.source == "fork:notes" and self.notes:
            return "noted" if last.results else self._note(last.text)
        if request.source == "server-compaction":
            return reply_with(block("the provider's own account", signature="s"))
        return summary() if request.source.startswith("fork:compact") else "nothing to note"

    def _note(self, asked: str) -> Message:
        found = re.search(r"(/\S+summary\.md)", asked)
        assert found is not None
        self.noted += 1
        old, new = described("Session title"), f"{described('Session title')}\n{TITLE}"
        if self.noted > 1:
            old, new = TITLE, f"{TITLE} {self.noted}"
        args = {"file_path": found[1], "old_string": old, "new_string": new, "replace_all": True}
        return assistant(ToolUse(f"e{self.noted}", "Edit", args))

    @property
    def summaries(self) -> list[str]:
        return [source for source in self.asked if source.startswith("fork:compact")]


class Place:
    """A project with a file of instructions, and hooks that write down what they are told."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.project = folder, folder / "project"
        self.project.mkdir()
        (self.project / "CLAUDE.md").write_text("Use tabs, never spaces.\n", encoding="utf-8")
        self.events: list[Event] = []
        self.hooks: dict[str, str] = {}

    def log(self, name: str) -> list[dict[str, Any]]:
        """What a hook was told, each time."""
        path = self.folder / f"{name}.log"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def hook(self, name: str, then: str = "true") -> None:
        self.hooks[name] = f"cat >> {self.folder}/{name}.log; echo >> {self.folder}/{name}.log; {then}"

    @asynccontextmanager
    async def session(self, mind: Mind, **options: Any) -> AsyncIterator[Session]:
        hooks = {n: [{"hooks": [{"command": c}]}] for n, c in self.hooks.items()}
        settings = {"hooks": hooks, **options.pop("settings", {})}
        async with Session(
            mind.model,
            self.project,
            home=self.folder / "home",
            environ={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"},
            settings=settings,
            **options,
        ) as session:
            session.subscribe(self.events.append)
            yield session

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def filled(self, session: Session, turns: int = 30) -> None:
        """Talk until the conversation has been compacted, or is too full for it."""
        for n in range(turns):
            if self.of(Compacted):
                return
            await session.ask(f"question {n} " + "fill " * 700)
            await session.tray.drain(5)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def said_on_compact(text: str) -> str:
    """A command of SessionStart that has something to say after a compaction alone."""
    return f'tail -n 2 {{log}} | grep -q \'"source": *"compact"\' && echo {text}; true'


def starting(place: Place, text: str) -> None:
    place.hook("SessionStart", said_on_compact(text).format(log=place.folder / "SessionStart.log"))


# --- the notes -----------------------------------------------------------------------------------------


async def test_a_refusal_holds_for_the_notes_too_and_is_said_once(place: Place) -> None:
    place.hook("PreCompact", "echo not now >&2; exit 2")
    mind = Mind()
    async with place.session(mind) as session:
        with pytest.raises(ContextFull):
            await place.filled(session)
        over = [r for r in mind.model.requests if r.source == "main"]

    assert mind.noted, "there were notes to be paid out"
    assert place.of(Compacted) == []
    refusals = [one for one in place.of(Notice) if "refused the compaction" in one.text]
    assert refusals == [Notice("a hook refused the compaction: not now", "warning")]
    times = [told["trigger"] for told in place.log("PreCompact")]
    assert times == ["auto"] * len(times)
    assert 1 < len(times) <= len(over), "asked once for each request, whoever would have compacted"


async def test_hooks_are_told_of_a_pay_out_and_what_they_add_stands_in_the_next_request(
    place: Place,
) -> None:
    place.hook("PreCompact")
    place.hook("PostCompact")
    starting(place, "the port is 8007")
    mind = Mind()
    async with place.session(mind) as session:
        await place.filled(session)
        (compacted,) = place.of(Compacted)
        last = [r for r in mind.model.requests if r.source == "main"][-1]
        id, shown = session.id, [p.message for p in session.view]

    assert (compacted.by, mind.summaries) == ("notes", [])
    assert len(place.log("PreCompact")) == 1
    (after,) = place.log("PostCompact")
    assert after["trigger"] == "auto"
    assert TITLE in after["compact_summary"]
    assert [told["source"] for told in place.log("SessionStart")] == ["startup", "compact"]
    assert any("the port is 8007" in p.message.text for p in last.view)
    async with place.session(mind, resume=id) as session:
        assert [p.message for p in session.view] == shown


async def test_instructions_of_a_hook_are_followed_by_a_summary_since_notes_cannot(place: Place) -> None:
    said = json.dumps({"hookSpecificOutput": {"additionalContext": "keep the ports"}})
    place.hook("PreCompact", f"echo '{said}'")
    mind = Mind()
    async with place.session(mind) as session:
        await place.filled(session)
        boundary = session.view.marks["compacted"]

    assert (boundary["by"], boundary["instructions"]) == ("summary", "keep the ports")
    assert len(place.log("PreCompact")) == 1, "the notes and the summary ask together"


# --- a summary -----------------------------------------------------------------------------------------


async def test_what_a_hook_adds_after_a_summary_is_in_the_very_next_request(place: Place) -> None:
    starting(place, "the port is 8007")
    mind = Mind()
    async with place.session(mind, settings={"flags": {"notes": False}}) as session:
        await place.filled(session)
        (compacted,) = place.of(Compacted)
        last = [r for r in mind.model.requests if r.source == "main"][-1]
        boundary = session.view.marks["compacted"]
        await session.ask("and now?")
        again = [p for p in session.view if "the port is 8007" in p.message.text]

    assert compacted.by == "summary"
    assert any("the port is 8007" in p.message.text for p in last.view)
    assert len(again) == 1, "it is not said a second time with the user's next words"
    assert boundary["tokens_after"] == compacted.tokens_after


# --- the provider's own --------------------------------------------------------------------------------


async def test_after_the_providers_compaction_instructions_and_files_are_restored(place: Place) -> None:
    """On demand: hooks are asked and told, and what they want is told to the provider."""
    said = json.dumps({"hookSpecificOutput": {"additionalContext": "keep the ports"}})
    place.hook("PreCompact", f"echo '{said}'")
    place.hook("PostCompact")
    starting(place, "the port is 8007")
    mind = Mind(replace(ABLE, window=32_000, max_output=2_000))
    chosen = {"flags": {"server_compact": True}, "compaction": {"server": "onDemand"}}
    async with place.session(mind, settings=chosen) as session:
        await place.filled(session)
        (compacted,) = place.of(Compacted)
        last = [r for r in mind.model.requests if r.source == "main"][-1]
        asked = next(r for r in mind.model.requests if r.source == "server-compaction")

    assert compacted.by == "server"
    text = "\n".join(p.message.text for p in last.view)
    assert text.count("Use tabs, never spaces.") == 1
    assert text.count("the port is 8007") == 1
    assert asked.frame.params["compaction"]["instructions"].endswith("keep the ports")
    assert "the provider's own account" in place.log("PostCompact")[0]["compact_summary"]


async def test_a_refusal_holds_for_the_providers_compaction_too(place: Place) -> None:
    place.hook("PreCompact", "echo not now >&2; exit 2")
    mind = Mind(replace(ABLE, window=32_000, max_output=2_000))
    chosen = {"flags": {"server_compact": True}, "compaction": {"server": "onDemand"}}
    async with place.session(mind, settings=chosen) as session:
        with pytest.raises(ContextFull):
            await place.filled(session)

    assert "server-compaction" not in mind.asked
    assert len([one for one in place.of(Notice) if "refused the compaction" in one.text]) == 1
