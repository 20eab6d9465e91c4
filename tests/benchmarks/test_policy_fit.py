"""The model of need is fitted right: known coefficients come out again, and labels out of files."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from layers.l2_microcompaction.talks import Talk

from benchmarks.policy.fit import RIDGE, area_under_curve, fitted, toml
from benchmarks.policy.samples import EVERY, Sample, Samples, halves, session_files
from sevenfold.layers.l2_microcompaction.candidates import ViewScan
from sevenfold.layers.l2_microcompaction.cost import (
    FEATURES,
    NeedModel,
    compute_features,
    compute_probability,
)
from sevenfold.settings.layers import CLEARABLE, MicroSettings

TRUE = (-2.0, 1.3, 0.2, -1.1, -2.4, 0.6, -0.3, -0.2, -1.7, 0.4, -0.1, 0.5)
KEEP = MicroSettings().keep_recent


def drawn(many: int, weights: tuple[float, ...] = TRUE, seed: int = 1) -> list[Sample]:
    """Results as they come, and whether each was needed, by these coefficients and chance."""
    rng = random.Random(seed)
    samples = []
    for _ in range(many):
        tool = rng.randrange(5)
        kinds = [float(tool == n) for n in range(1, 5)]
        numbers = [rng.uniform(0, 8), rng.uniform(0, 7), rng.uniform(0, 4)]
        read = tool == 1
        since = [float(read and rng.random() < 0.3), float(read and rng.random() < 0.2)]
        untouched = rng.uniform(0, 6) if read else 0.0
        values = (1.0, *kinds, *numbers, *since, untouched, float(rng.random() < 0.1))
        needed = rng.random() < compute_probability(weights, values)
        samples.append(Sample(values, needed, needed, 100))
    return samples


def likelihood(samples: list[Sample], weights: tuple[float, ...]) -> float:
    """What is made as large as can be: the chance of all that happened, less the pull of the ridge."""
    total = -RIDGE / 2 * sum(w * w for w in weights)
    for sample in samples:
        chance = compute_probability(weights, sample.features)
        total += math.log(chance if sample.needed else 1 - chance)
    return total


def test_there_is_a_coefficient_for_every_feature() -> None:
    assert len(TRUE) == len(FEATURES)


def test_known_coefficients_come_out_of_made_up_samples() -> None:
    found = fitted(drawn(20_000))

    for name, true, ours in zip(FEATURES, TRUE, found, strict=True):
        assert ours == pytest.approx(true, abs=0.25), name


def test_what_comes_out_is_the_best_there_is() -> None:
    samples = drawn(1_500)
    found = fitted(samples)
    best = likelihood(samples, found)

    assert best > likelihood(samples, TRUE)
    for n in range(len(FEATURES)):
        for step in (-0.02, 0.02):
            other = (*found[:n], found[n] + step, *found[n + 1 :])
            assert likelihood(samples, other) < best, FEATURES[n]


@pytest.mark.parametrize("needed", [True, False])
def test_sessions_that_say_the_same_of_everything_do_not_run_away(needed: bool) -> None:
    samples = [Sample(s.features, needed, needed, 1) for s in drawn(400)]
    found = fitted(samples)

    assert all(math.isfinite(weight) and abs(weight) < 20 for weight in found)
    chances = [compute_probability(found, s.features) for s in samples]
    assert min(chances) > 0.5 if needed else max(chances) < 0.5


def test_a_feature_that_never_occurs_gets_nothing() -> None:
    error = FEATURES.index("error")
    samples = [
        Sample((*s.features[:error], 0.0, *s.features[error + 1 :]), s.needed, s.robust, 1)
        for s in drawn(2_000)
    ]
    assert fitted(samples)[error] == pytest.approx(0.0, abs=1e-9)


def test_the_area_under_the_curve_is_how_often_the_needed_one_ranks_higher() -> None:
    def sample(chance: float, needed: bool) -> Sample:
        return Sample((chance, *[0.0] * (len(FEATURES) - 1)), needed, False, 1)

    weights = (1.0, *[0.0] * (len(FEATURES) - 1))
    right = [sample(2, True), sample(1, True), sample(0, False)]
    mixed = [sample(3, False), sample(2, True), sample(1, True), sample(0, False)]

    assert area_under_curve(right, weights) == 1.0
    assert area_under_curve(mixed, weights) == 0.5
    assert math.isnan(area_under_curve(right[:2], weights))
    known = drawn(4_000, seed=2)
    assert area_under_curve(known, fitted(drawn(4_000))) > 0.75


def test_the_file_it_writes_is_the_file_the_layer_reads(tmp_path: Path) -> None:
    path = tmp_path / "need.toml"
    path.write_text(toml(TRUE, 3, 1_234), encoding="utf-8")
    talk, scan = Talk(tmp_path), ViewScan(CLEARABLE, ())
    talk.call("Read", 4_000, file_path="/a")
    talk.say("go on")
    talk.call("Bash", 4_000)
    scan.follow(talk.view)
    model, ours = NeedModel.load(path), NeedModel.load()

    assert "3 sessions, 1,234 samples" in path.read_text(encoding="utf-8")
    for one in scan.found:
        assert model.chance(one, scan) == compute_probability(TRUE, compute_features(one, scan))
        assert model.chance(one, scan) != ours.chance(one, scan)


def test_every_second_session_is_left_for_the_report(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl.gz", "c.jsonl", "index.json", "d.jsonl"):
        (tmp_path / name).touch()
    files = session_files(tmp_path)
    tuning, others = halves(files)

    assert [path.name for path in files] == ["a.jsonl.gz", "b.jsonl", "c.jsonl", "d.jsonl"]
    assert sorted([*tuning, *others]) == files
    assert not set(tuning) & set(others)


# --- labels from a file ---------------------------------------------------------------------------------


class Written:
    """A session file as Claude Code writes it."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def add(self, kind: str, content: Any, **fields: Any) -> None:
        n = len(self.records)
        message = {"role": kind, "content": content, **fields}
        self.records.append(
            {
                "type": kind,
                "uuid": f"u{n}",
                "parentUuid": f"u{n - 1}" if n else None,
                "isSidechain": False,
                "sessionId": "s",
                "version": "2.1.17",
                "cwd": "/w",
                "timestamp": f"2026-01-27T{9 + n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}.000Z",
                "message": message,
            }
        )

    def replies(self, block: dict[str, Any]) -> None:
        usage = {"input_tokens": 10, "output_tokens": 5}
        self.add("assistant", [block], id=f"m{len(self.records)}", model="claude-x", usage=usage)

    def read(self, id: str, text: str) -> None:
        self.call(id, "Read", file_path=f"/{id}")
        self.add("user", [{"type": "tool_result", "tool_use_id": id, "content": text}])

    def call(self, id: str, tool: str, **args: Any) -> None:
        self.replies({"type": "tool_use", "id": id, "name": tool, "input": args})

    def samples(self, folder: Path) -> Samples:
        path = folder / "session.jsonl"
        lines = [json.dumps(record) for record in self.records]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return Samples(path)


def test_a_sample_is_needed_if_a_later_reply_goes_back_to_it(tmp_path: Path) -> None:
    session = Written()
    session.add("user", "please look at them")
    for n in range(KEEP + EVERY):
        session.read(f"r{n}", f"some_rare_word_{n} is here\nreturn compute_total_{n}(order)\n")
    session.replies({"type": "text", "text": "It is some_rare_word_0."})
    session.call("e", "Edit", file_path="/r1", old_string="return compute_total_1(order)")
    found = session.samples(tmp_path)

    looks = [r for r in range(1, KEEP + EVERY + 3) if r % EVERY == 0]
    assert len(found.samples) == sum(max(0, min(look - 1, KEEP + EVERY) - KEEP) for look in looks)
    last = found.samples[-(looks[-1] - 1 - KEEP) :]
    assert [s.needed for s in last[:3]] == [True, True, False]
    assert [s.robust for s in last[:3]] == [False, True, False]
    assert all(s.features[0] == 1.0 and s.features[1] == 1.0 for s in found.samples)
    assert found.remaining[0] == KEEP + EVERY + 2
    assert found.remaining[-1] == 1


def test_what_was_needed_before_a_sample_does_not_count(tmp_path: Path) -> None:
    session = Written()
    session.add("user", "please look at them")
    session.read("r0", "some_rare_word is here")
    session.replies({"type": "text", "text": "It is some_rare_word."})
    session.add("user", "go on")
    for n in range(1, KEEP + EVERY):
        session.read(f"r{n}", f"plain words number {n}")
    found = session.samples(tmp_path)

    assert found.samples
    assert not any(sample.needed for sample in found.samples)
