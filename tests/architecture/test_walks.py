"""Common actions enter few files: a reader who follows one has few to open."""

from __future__ import annotations

import pytest
from architecture.source import format_offenders
from architecture.walks import count_walk


@pytest.mark.parametrize(("walk", "most"), [("chat", 116), ("first-recall", 19), ("add", 30)])
def test_a_walk_enters_few_files(walk: str, most: int) -> None:
    files = count_walk(walk)["files"]

    assert len(files) <= most, format_offenders(files)
