"""What goes over each wire, and what is made of what comes, is frozen in files.

After a deliberate change: `PYTHONPATH=tests python tests/models/conversions.py`, then read the diff.
"""

from __future__ import annotations

import pytest
from models.conversions import CONVERTERS, GOLDEN, write_golden


@pytest.mark.parametrize("name", CONVERTERS)
def test_the_bytes_and_the_values_are_those_of_the_golden_file(name: str) -> None:
    assert write_golden(name) == (GOLDEN / f"{name}.json").read_text(encoding="utf-8")


def test_there_is_no_golden_file_without_its_converter() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == CONVERTERS.keys()
