"""What always comes back after a compaction: counted before, given back whole, never lost in silence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from pathlib import Path

import pytest
from kit import RestoredBy
from layers.l3_session_memory.noting import Noting
from layers.l3_session_memory.test_notes_compaction import NOTED, SMALL, covers, paid
from layers.l4_compaction.summaries import Compacting, rounds, summary, talked
from layers.l4_compaction.test_compacting_by_size import RATES, SETTINGS, compacting

from sevenfold.core.errors import KeyRefused
from sevenfold.core.events import Notice, Progress
from sevenfold.core.messages import Message, Text, assistant, user
from sevenfold.core.tokens import estimate_tokens
from sevenfold.core.transcript import PlacedMessage, Reply, Transcript
from sevenfold.layers.l3_session_memory.notes_compaction import NotesCompaction
from sevenfold.layers.l4_compaction.plan import PRICE, estimate_worth, make_plan
from sevenfold.layers.shared.boundary import find_last_boundary
from sevenfold.layers.shared.restore import SHARE, CompactionCut, Restorer, Stands

pytestmark = pytest.mark.anyio
RULES = "RULES OF THE HOUSE "


@dataclass
class Rules:
    """Rules of so many tokens, which stand in a message of their own."""

    tokens: int = 1_000
    rooms: list[int] = field(default_factory=list)

    @property
    def message(self) -> Message:
        return user(RULES + "x" * (self.tokens * 4 - len(RULES)))

    @property
    def stands(self) -> Stands:
        return _stands

    def again(self, cut: CompactionCut, room: int) -> Sequence[Message]:
        if any(map(_stands, cut.kept)):
            return ()
        self.rooms.append(room)
        fits = cut.tokens(self.message.text) <= room
        return (self.message if fits else user(f"{RULES}cut to {room}"),)


def _stands(placed: PlacedMessage) -> bool:
    return placed.message.text.startswith(RULES)


def opened(rules: Rules, after: Transcript) -> Transcript:
    """The same conversation, which begins with the rules."""
    log = Transcript(lambda: 0.0)
    log.add(rules.message, by="session")
    for entry in after.entries:
        log.add(entry.what, by=entry.by)
    return log


def ruled(rules: Rules, log: Transcript | None = None, **fields: object) -> Compacting:
    options = {"restorer": Restorer(standing=rules)}
    known = {"script": [summary()] * 2, "options": options, **fields}
    return Compacting(log=opened(rules, log or talked()), **known)  # type: ignore[arg-type]


def short() -> Transcript:
    t = Transcript(lambda: 0.0)
    t.add(user("hello there"))
    t.add(Reply(assistant(Text("Hello. What is to be done?"))), by="model")
    return t


async def test_the_rules_come_back_whole_though_little_else_has_room() -> None:
    rules = Rules(2_500)
    talk = ruled(rules)
    await talk.fit()
    boundary = find_last_boundary(talk.log.view)

    assert boundary
    assert talk.texts.count(rules.message.text) == 1
    assert boundary.tokens_after == talk.tokens
    assert talk.tokens <= talk.pressure().thresholds.auto_compact


async def test_a_short_conversation_with_long_rules_is_not_worth_a_summary() -> None:
    talk = ruled(Rules(3_000), short())
    before = talk.texts

    assert await talk.compact() == []
    assert talk.texts == before
    assert "too little here to compact" in talk.of(Notice)[0].text
    assert not talk.model.requests


async def test_rules_that_have_grown_so_much_that_nothing_is_won_decline_it() -> None:
    rules = Rules(200)
    log = short()
    rounds(log, 4, 2_000)
    talk = ruled(rules, log)
    before, rules.tokens = talk.texts, 4_000

    assert await talk.compact() == []
    assert talk.texts == before
    [said] = talk.of(Notice)
    assert said.text.startswith("nothing was compacted")
    assert said.level == "warning"


async def test_a_digest_leaves_room_for_them() -> None:
    rules = Rules(2_500)
    talk = ruled(rules, script=[KeyRefused("no")] * 5)
    await talk.fit()
    boundary = find_last_boundary(talk.log.view)

    assert boundary
    assert boundary.by == "digest"
    assert talk.texts.count(rules.message.text) == 1
    assert talk.tokens <= talk.pressure().thresholds.auto_compact


async def test_rules_too_long_for_the_window_get_most_of_it_and_the_conversation_goes_on() -> None:
    rules = Rules(6_300)
    talk = ruled(rules)
    fixed = talk.tokens - talk.log.view.calibration.tokens(talk.log.view.size)
    most = talk.pressure().thresholds.auto_compact
    await talk.fit()

    assert find_last_boundary(talk.log.view)
    assert rules.rooms[-1] >= int((most - fixed) * SHARE)
    assert talk.texts.count(f"{RULES}cut to {rules.rooms[-1]}") == 1


async def test_rules_that_stay_in_view_are_not_counted_as_if_they_came_back() -> None:
    rules = Rules(1_000)
    log = talked()
    log.add(rules.message, by="Compaction")
    talk = Compacting([summary()], log, options={"restorer": Restorer(standing=rules)})
    planned = make_plan(talk.request, talk.pressure(), "auto", talk.able, stands=rules.stands)
    assert planned
    await talk.fit()

    assert planned.back == 0
    assert talk.texts.count(rules.message.text) == 1
    assert rules.rooms == []


async def test_what_comes_back_frees_nothing_when_it_is_asked_whether_a_summary_pays() -> None:
    rules, log = Rules(40_000), short()
    rounds(log, 40, 8_000)
    talk = compacting(opened(rules, log))
    pressure = talk.pressure()
    planned = make_plan(talk.request, pressure, PRICE, talk.able)
    counted = make_plan(talk.request, pressure, PRICE, talk.able, stands=rules.stands)

    assert planned
    assert counted
    assert counted.back == pytest.approx(40_000, rel=0.01)
    freed = estimate_worth(planned, RATES, SETTINGS).freed - estimate_worth(counted, RATES, SETTINGS).freed
    assert freed == counted.back


async def test_the_rest_shares_what_is_left_then() -> None:
    rules, rooms = Rules(1_000), list[int]()

    def restore(cut: CompactionCut, room: int) -> Message:
        rooms.append(room)
        return user("a file")

    log = talked()
    cut = CompactionCut(log.view, range(5), 8_000)
    both = Restorer([RestoredBy(restore)], rules)(cut, 3_000, 3_000)

    assert [m.text[:6] for m in both] == [RULES[:6], "a file"]
    assert rooms == [(3_000 - estimate_tokens(rules.message.text)) // 2]


@pytest.mark.parametrize("tokens", [2_000, 8_000])
async def test_they_come_back_when_the_notes_stand_in_too(tmp_path: Path, tokens: int) -> None:
    rules, talk = Rules(tokens), noted(tmp_path, tokens)
    too_much = user("y" * 4 * 26_000)
    pays_out(talk, rules, lambda cut, room: too_much)
    await paid(talk)
    boundary = find_last_boundary(talk.view)

    assert boundary
    assert rules.message in talk.view.messages
    assert talk.view[-1].by == "tools", "what was said last stays last"
    assert [m.text for m in talk.view.messages].count(rules.message.text) == 1
    assert boundary.tokens_after <= talk.thresholds.auto_compact


async def test_notes_that_are_too_long_beside_them_do_not_stand_in(tmp_path: Path) -> None:
    talk = noted(tmp_path, 16_500, covered=32)
    pays_out(talk, Rules(16_500), lambda cut, room: None)

    assert await talk.pay() == []
    assert "still too much" in talk.of(Progress)[-1].said
    pays_out(talk, None, lambda cut, room: None)
    assert await talk.pay() != [], "it is they alone that are too much"


def noted(folder: Path, tokens: int, covered: int = 45) -> Noting:
    """A full conversation that begins with rules of so many tokens, and notes on most of it."""
    talk = Noting(folder, able=SMALL)
    talk.log.add(Rules(tokens).message, by="session")
    talk.say("Rewrite the parser.")
    for n in range(26):
        talk.call(n, 0, 4_000)
    covers(talk, covered)
    talk.write(NOTED)
    return talk


def pays_out(
    talk: Noting, rules: Rules | None, restore: Callable[[CompactionCut, int], Message | None]
) -> None:
    restorer = Restorer([RestoredBy(restore)], rules)
    talk.payout = NotesCompaction(with_fields(talk.parts, restorer=restorer), talk.book)
