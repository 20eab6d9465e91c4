"""The prompts of the background work against a real model: read, refused or repaired, never a crash."""

from __future__ import annotations

import anyio
import pytest
from llama import weights_or_fail

from benchmarks.local_model.run import PROMPTS, measure, run


@pytest.mark.soak
def test_every_prompt_is_answered_or_refused_and_nothing_crashes() -> None:
    tally = anyio.run(measure, weights_or_fail(), 2)
    print({name: dict(counts) for name, counts in tally.counts.items()})
    for name in PROMPTS:
        counts = tally.counts[name]
        assert counts["answered"] + counts["refused"] + counts["completed"] > 0, name


def test_without_weights_it_says_that_it_was_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEVENFOLD_LOCAL_WEIGHTS", raising=False)
    [table] = run()
    assert table.rows == []
    assert table.notes[0].startswith("skipped")
