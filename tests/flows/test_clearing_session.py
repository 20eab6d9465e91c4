"""A whole session whose old results are cleared: real tools, real files, read back by the marker."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flows.wire import SteadySimulator
from kit import extends
from layers.l2_microcompaction.talks import need_file

from sevenfold.core.events import Cleared, Declined, Denied, Event, Failed, Notice, ReadAgain, Sending
from sevenfold.core.messages import Json, ToolUse, assistant
from sevenfold.core.request import Request, encode_prefix
from sevenfold.layers.l2_microcompaction.candidates import CLEARED, parse_marker
from sevenfold.session.session import Session
from sevenfold.simulator import ManualClock
from sevenfold.testing import ScriptedModel
from sevenfold.testing.doubles import Line

pytestmark = pytest.mark.anyio
FILES = 12
LINES = 250
OTHERS = ("notes", "payout", "recall", "extraction", "dream")
"""Layers that would ask the model things of their own."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    for n in range(FILES):
        lines = [f"line {i} of file {n} says what it has to say\n" for i in range(LINES)]
        (folder / f"f{n}.txt").write_text("".join(lines), encoding="utf-8")
    return folder


def options(tmp_path: Path, **environ: str) -> dict[str, Any]:
    micro = {"leastFreed": 5_000, "margin": 1, "keepRecent": 2, "needModel": str(need_file(tmp_path))}
    known = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "ANTHROPIC_API_KEY": "k"}
    return {
        "home": tmp_path / "home",
        "environ": {**known, **environ},
        "settings": {"micro": micro, "flags": dict.fromkeys(OTHERS, False)},
    }


def read(n: int) -> ToolUse:
    return ToolUse(f"toolu_{n}", "Read", {"file_path": f"f{n}.txt"})


def markers(request: Request) -> dict[str, str]:
    results = [r for placed in request.view for r in placed.message.results]
    return {r.tool_use_id: r.text for r in results if r.text.startswith(CLEARED)}


def by_marker(id: str) -> Callable[[Request], Any]:
    """A model that reads what the marker in place of this result says."""

    def reply(request: Request) -> Any:
        shown = markers(request)
        kept = parse_marker(shown[id])
        assert kept is not None
        whole = re.search(rf"kept in (/\S+/{re.escape(kept.file)}) lines", shown[id])
        assert whole is not None
        many = kept.last - kept.first + 1
        args = {"file_path": whole[1], "offset": kept.first, "limit": many}
        return assistant(ToolUse("back", "Read", args))

    return reply


async def test_what_was_cleared_is_read_back_from_where_its_marker_says(
    tmp_path: Path, project: Path
) -> None:
    events: list[Event] = []
    script: list[Line] = [*(assistant(read(n)) for n in range(FILES)), "read"]
    model = ScriptedModel([*script, by_marker("toolu_3"), "there it is"])
    async with Session(model, project, **options(tmp_path)) as session:
        session.subscribe(events.append)
        await session.ask("read all files")
        before = {r.tool_use_id: r.text for p in session.view for r in p.message.results}
        id, sent = session.id, encode_prefix(session.request)
        await session.ask("what was in the fourth one?")
        shown = {r.tool_use_id: r.text for p in session.view for r in p.message.results}

    assert before["toolu_3"].startswith(CLEARED)
    lines = [line.split("\t", 1)[1] for line in shown["back"].split("\n") if "\t" in line]
    assert [line.split("\t", 1)[1] for line in lines] == [
        f"line {i} of file 3 says what it has to say" for i in range(LINES)
    ]
    [again] = [event for event in events if isinstance(event, ReadAgain)]
    assert again.times == 1
    assert again.tokens > 2_000
    wrong = Denied | Failed | Declined | Notice
    assert [event for event in events if isinstance(event, wrong)] == []

    async with Session(ScriptedModel(["still here"]), project, resume=id, **options(tmp_path)) as on:
        on.subscribe(events.append)
        assert extends(sent, encode_prefix(on.request))
        await on.ask("go on")
    assert len([event for event in events if isinstance(event, ReadAgain)]) == 1


def reading(body: Json) -> list[Json]:
    """On the wire: reads one file after the other, then is done."""
    done = sum(b["type"] == "tool_result" for m in body["messages"] for b in m["content"])
    if done < FILES:
        args = {"file_path": f"f{done}.txt"}
        return [{"type": "tool_use", "id": f"toolu_{done}", "name": "Read", "input": args}]
    return [{"type": "text", "text": "read"}]


async def test_on_the_wire_only_the_announced_breaks_happen(tmp_path: Path, project: Path) -> None:
    events: list[Event] = []
    async with SteadySimulator(replies=reading, clock=ManualClock()) as simulator:
        simulator.events = events
        opened = options(tmp_path, ANTHROPIC_BASE_URL=simulator.url)
        async with Session("claude-sonnet-4-5", project, **opened) as session:
            session.subscribe(events.append)
            await session.ask("read all files")

        cleared = [event for event in events if isinstance(event, Cleared)]
        changed = [row for row in simulator.ledger.rows if row.shared and row.shared.diverged]
        lost = [event for event in events if isinstance(event, Sending) and event.lost]
        assert cleared
        assert len(changed) == len(cleared)
        assert [event.why for event in lost] == [event.why for event in cleared]
        assert all(event.expected for event in lost)
        for row in changed:
            assert row.shared is not None
            assert row.tokens.cache_read > 0.9 * row.shared.tokens
