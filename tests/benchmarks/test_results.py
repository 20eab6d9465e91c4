"""The pages say what the benchmarks measured last, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import headlines
from benchmarks.gathering import PAGE, Measured, kept, names, page


@pytest.mark.parametrize("path", headlines.PAGES, ids=lambda path: path.name)
def test_the_figures_of_a_page_are_those_that_were_measured(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert headlines.put_in(text, headlines.table(kept())) == text


def test_the_page_of_results_is_made_of_what_each_benchmark_kept() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(kept().values())


def test_every_benchmark_has_been_run_and_is_on_the_page() -> None:
    assert sorted(kept()) == names()


def test_nothing_quick_is_published() -> None:
    assert [one.name for one in kept().values() if one.quick] == []


def test_a_figure_that_is_not_there_is_an_error_and_not_a_gap() -> None:
    measured = Measured("core", "", "", {}, 0.0, False, [])

    with pytest.raises(LookupError, match="core has no figure import time / sevenfold / s"):
        headlines.table({"core": measured})


def test_a_page_without_a_place_for_figures_is_said() -> None:
    with pytest.raises(ValueError, match="no place for figures"):
        headlines.put_in("# A page\n", "| a |\n")
