"""The figures that the README and the documentation name, each taken from what was measured last.

A line of theirs is written once, here, with a place for each figure. `python -m benchmarks` puts the
figures in; a test holds the pages to what the results say.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.gathering import HERE, Measured

BEGIN: Final = "<!-- figures: written by python -m benchmarks -->"
END: Final = "<!-- end of figures -->"
PAGES: Final = (HERE.parent / "README.md", HERE.parent / "docs" / "figures.md")


def put_in(text: str, table: str) -> str:
    """The page with the table between its two comments."""
    head, found, rest = text.partition(BEGIN)
    _, ended, tail = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"the page has no place for figures: {BEGIN} … {END}")
    return f"{head}{BEGIN}\n{table}{END}{tail}"


def table(measured: Mapping[str, Measured]) -> str:
    """One line for each headline whose benchmark has been run."""
    lines = ["| what | figure | command |", "|---|---|---|"]
    for name, what, figure, cells in HEADLINES:
        if (one := measured.get(name)) is None:
            continue
        figures = [one.cell(*cell) for cell in cells]
        lines.append(f"| {what} | {figure.format(*figures)} | `{one.command}` |")
    return "\n".join(lines) + "\n"


def write(measured: Mapping[str, Measured], pages: tuple[Path, ...] = PAGES) -> None:
    made = table(measured)
    for path in pages:
        path.write_text(put_in(path.read_text(encoding="utf-8"), made), encoding="utf-8")


IMPORT: Final = "import time"
STEP: Final = "our own time per step"
BETWEEN: Final = "estimated against reported tokens between requests"
HEADLINES: Final[tuple[tuple[str, str, str, tuple[tuple[str, str, str], ...]], ...]] = (
    (
        "core",
        "import, `Session` included",
        "{} s; the anthropic SDK takes {} times as long, the openai SDK {} times",
        (
            (IMPORT, "sevenfold", "s"),
            (IMPORT, "anthropic", "ratio"),
            (IMPORT, "openai", "ratio"),
        ),
    ),
    (
        "core",
        "start of `sevenfold chat -p` to its first request",
        "{} s",
        (("start of", "median", "s"),),
    ),
    (
        "core",
        "our own time per step at 10 / 1,000 / 10,000 messages, transcript on disk",
        "{} / {} / {} ms",
        ((STEP, "10", "step"), (STEP, "1000", "step"), (STEP, "10000", "step")),
    ),
    (
        "core",
        "the fixed prefix of a session: system prompt and tools, estimated",
        "{} tokens",
        (("the fixed prefix", "together", "tokens"),),
    ),
    (
        "estimator",
        "error of the token estimate for what a step adds, median, held-out half of 34 real sessions",
        "{} % by the raw rule, {} % calibrated",
        (
            (BETWEEN, "raw rule, held-out", "new median %"),
            (BETWEEN, "calibrated on the other half", "new median %"),
        ),
    ),
    (
        "dreaming",
        "dreams without a model on made-up folders of 100 memories: facts lost, copies merged, "
        "lookalikes wrongly merged",
        "{} of {}, {} of {}, {} of {}",
        tuple(
            ("Synthetic folders", "100", column)
            for column in ("lost", "facts", "merged", "copies", "wrongly merged", "lookalikes")
        ),
    ),
    (
        "guard",
        "secrets of known kinds found, as they are; detect-secrets alone",
        "{} %; {} %",
        (
            ("Made-up secrets", "as it is", "found, %"),
            ("Made-up secrets", "as it is", "detect-secrets alone, %"),
        ),
    ),
    (
        "guard",
        "labelled injected orders held back, texts not tuned on; false alarms on benign ones",
        "{} %; {} %",
        (
            ("Labelled injections", "deepset, attacks, kept back", "agent"),
            ("Labelled injections", "deepset, benign, kept back", "agent"),
        ),
    ),
)
