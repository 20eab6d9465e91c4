"""The prompts of the background work against a real model: read, refused or repaired, never a crash."""

from __future__ import annotations

import anyio
import pytest
from llama import weights_or_fail

from benchmarks.local_model.run import OUTCOMES, PROMPTS, Tally, measure, measure_local, run
from sevenfold.core.events import Failed, Forked, Repaired
from sevenfold.core.tokens import Usage
from sevenfold.models import connect_model
from sevenfold.models.capabilities import ModelAccess


@pytest.mark.soak
def test_a_dozen_rounds_of_every_prompt_and_nothing_crashes() -> None:
    tally = anyio.run(measure_local, weights_or_fail(), 12)
    print({name: dict(counts) for name, counts in tally.counts.items()}, dict(tally.causes))
    for name in PROMPTS:
        assert tally.counts[name]["crashed"] == 0, tally.causes
        assert sum(tally.counts[name][one] for one in OUTCOMES) == 12, name


def test_a_prompt_counts_once_a_round_as_it_ended() -> None:
    tally = Tally()
    tally(Forked("extract", 2, Usage(), 0.0))
    tally(Failed("Extraction", "the conversation was not looked through: the reply was cut off"))
    tally(Forked("recall-plain", 1, Usage(), 0.0))
    tally(Repaired("Recall", "the choice was told in words"))
    tally(Failed("NotesKeeping", "KeyError('old_string')"))
    tally.end_round()
    assert tally.counts["extract"] == {"replies": 2, "calls refused": 0, "refused": 1}
    assert tally.counts["select"]["repaired"] == 1
    assert tally.counts["notes"]["crashed"] == 1, "an error that nobody expected is told as Python shows it"


def test_both_ways_of_extraction_save_the_same_without_a_real_model() -> None:
    tally = anyio.run(measure, connect_model("offline", ModelAccess()), 2)
    assert [len(one) for one in tally.saved["fork"]] == [2, 1]
    assert [[one.body for one in some] for some in tally.saved["lean"]] == [
        [one.body for one in some] for some in tally.saved["fork"]
    ]


def test_without_weights_it_says_that_it_was_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEVENFOLD_LOCAL_WEIGHTS", raising=False)
    table, ways = run(quick=True)
    assert table.rows == []
    assert table.notes[0].startswith("skipped")
    assert len(ways.rows) == 1, "what needs no weights is measured all the same"
