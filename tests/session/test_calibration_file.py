"""What was learned about tokens outlives a session, within bounds, and never stands in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from sevenfold.core.tokens import Calibration, MessageSize
from sevenfold.session.log import MOST_EVIDENCE, CalibrationFile


def taught(times: int) -> Calibration:
    learned = Calibration()
    for _ in range(times):
        learned = learned.learn(MessageSize(text=40_000), 15_000)
    return learned


def test_it_is_kept_per_model(tmp_path: Path) -> None:
    CalibrationFile(tmp_path).keep("a", taught(3))
    CalibrationFile(tmp_path).keep("b", taught(5))

    assert CalibrationFile(tmp_path).of("a") == taught(3)
    assert CalibrationFile(tmp_path).of("c") is None


def test_a_long_life_does_not_make_it_deaf_to_what_it_sees(tmp_path: Path) -> None:
    CalibrationFile(tmp_path).keep("a", taught(1_000))
    kept = CalibrationFile(tmp_path).of("a")

    assert kept is not None
    assert kept.tt == pytest.approx(MOST_EVIDENCE)
    assert kept.factors == pytest.approx(taught(1_000).factors, abs=0.01)


def test_nothing_learned_writes_nothing(tmp_path: Path) -> None:
    CalibrationFile(tmp_path / "home").keep("a", Calibration())
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"a": "x"}', b"\xff"])
def test_a_damaged_file_is_as_good_as_none_and_is_mended(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "calibration.json").write_bytes(damage)
    learned = CalibrationFile(tmp_path)
    assert learned.of("a") is None

    learned.keep("a", taught(3))
    assert learned.of("a") == taught(3)


def test_a_home_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    CalibrationFile(tmp_path / "file").keep("a", taught(3))
    assert CalibrationFile(tmp_path / "file").of("a") is None
