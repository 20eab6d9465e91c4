"""What comes back after a compaction: a plan, skills and the title of the session, by one seam."""

from __future__ import annotations

from pathlib import Path

import pytest
from flows.test_compaction_hooks import TITLE, Mind, Place

from sevenfold.cli.commands.sessions import summarise_session
from sevenfold.core.events import Compacted, Failed
from sevenfold.core.messages import Message
from sevenfold.layers.shared.restore import CompactionCut, RestoredText, RestoredTexts, RestoreSource
from sevenfold.storage.places import find_places, list_sessions

pytestmark = pytest.mark.anyio


class Broken:
    name = "broken"

    def restored(self, cut: CompactionCut, room: int) -> Message | None:
        raise KeyError("no plan for today")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("notes", [True, False], ids=["by notes", "by a summary"])
async def test_what_a_caller_wants_back_is_in_the_next_request(place: Place, notes: bool) -> None:
    plan = ["first plan"]
    theirs: tuple[RestoreSource, ...] = (
        Broken(),
        RestoredText("plan", "The plan of this session.", lambda: plan[0]),
        RestoredTexts("skills", "Skills in use.", lambda: [("sql", "Quote every name.")]),
    )
    mind = Mind()
    settings = {"flags": {"payout": notes}}
    async with place.session(mind, settings=settings, restorables=theirs) as session:
        plan[0] = "second plan"
        await place.filled(session)
        (compacted,) = place.of(Compacted)
        last = [r for r in mind.model.requests if r.source == "main"][-1]

    text = "\n".join(p.message.text for p in last.view)
    assert compacted.by == ("notes" if notes else "summary")
    assert "second plan" in text
    assert "Quote every name." in text
    assert "Use tabs, never spaces." in text
    (failed,) = [one for one in place.of(Failed) if one.by == "restore"]
    assert "broken is not given back" in failed.cause


async def test_the_title_in_the_notes_is_a_mark_is_listed_and_comes_back(place: Place) -> None:
    mind = Mind()
    async with place.session(mind, settings={"flags": {"payout": False}}) as session:
        await place.filled(session)
        assert place.of(Compacted)
        title = session.view.marks["title"]
        shown = [p.message.text for p in session.view if title in p.message.text]
        id = session.id
    (info,) = list_sessions(find_places(place.project, place.folder / "home"))

    assert title.startswith(TITLE)
    assert any("What this session is called" in text for text in shown)
    assert (info.id, summarise_session(info).first_words) == (id, title)
    async with place.session(mind, resume=id) as session:
        assert session.view.marks["title"] == title
