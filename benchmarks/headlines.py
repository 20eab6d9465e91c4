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
HELD: Final = "Each repository held out"
POOLED: Final = "all, each under"
REPOSITORIES: Final = (
    "entireio/cli",
    "FSM1/cipher-box",
    "JanDeDobbeleer/oh-my-posh",
    "PackmindHub/context-evaluator",
)
TUNED: Final = "All repositories"
LARGE: Final = "Beyond 200,000 tokens"
OF_BASE: Final = "% of append-only"
WARM: Final = "Warm recall"
HEADLINES: Final[tuple[tuple[str, str, str, tuple[tuple[str, str, str], ...]], ...]] = (
    (
        "policy",
        "input cost of recorded sessions with all that a default session does in the background, in % of "
        "append-only, simulated; the sizes for compaction chosen on three repositories and reported on the "
        "fourth, in turn (decision 12 says how far to trust it)",
        "{} % over all (90 % of draws: {}), by repository {}, {}, {} and {} %; {} robust extra requests "
        "and {} summaries per 100; of tool results of at least 150 tokens that left the view, {} % were "
        "needed again beyond doubt",
        (
            (HELD, POOLED, OF_BASE),
            (HELD, POOLED, "90 % of draws"),
            *((HELD, name, OF_BASE) for name in REPOSITORIES),
            (HELD, POOLED, "robust/100"),
            (HELD, POOLED, "summaries/100"),
            (HELD, POOLED, "regret >= 150, %"),
        ),
    ),
    (
        "policy",
        "the policies as they run, on the same sessions, which were looked at while tuning; beyond 200,000 "
        "tokens",
        "lifetimes alone {}, `specified` {}, `balanced` {}, `thrifty` {} %; {}, {}, {}, {} %",
        tuple(
            (table, policy, OF_BASE)
            for table in (TUNED, LARGE)
            for policy in ("lifetimes", "specified", "balanced", "thrifty")
        ),
    ),
    (
        "core",
        "import, `Session` included",
        "{} s; the anthropic SDK takes {} times as long, the openai SDK {} times",
        ((IMPORT, "sevenfold", "s"), (IMPORT, "anthropic", "ratio"), (IMPORT, "openai", "ratio")),
    ),
    (
        "startup",
        "start of `sevenfold chat -p` to its first request",
        "{} ms",
        (("start of a process", "`chat -p` to the first request over HTTP", "wall ms"),),
    ),
    (
        "core",
        "our own time per step at 10 / 1,000 / 10,000 messages, transcript on disk",
        "{} / {} / {} ms",
        ((STEP, "10", "step"), (STEP, "1000", "step"), (STEP, "10000", "step")),
    ),
    (
        "core",
        "the fixed prefix of a session: system prompt, rules of memory and tools, estimated",
        "{} tokens",
        (("the fixed prefix", "together", "tokens"),),
    ),
    (
        "compaction",
        "one compaction of 166,000 tokens, simulated, its summary call included, in thousand base-price "
        "tokens; the user's messages that are still there word for word",
        "ours {}, {}; LangChain {}, {}; deepagents {}, {}",
        tuple(
            cell
            for who in ("Sevenfold: summary on the warm", "LangChain, whole history", "deepagents")
            for cell in (
                ("One compaction", who, "cost"),
                ("What the next request", who, "user's messages, word for word"),
            )
        ),
    ),
    (
        "fit",
        "500 requests of one agent session, simulated input cost in thousand base-price tokens, and "
        "requests that broke more than 5 % of the prefix",
        "ours {}, {}; append-only {}, {}; LangChain's context editing {}, {}; deepagents {}, {}",
        tuple(
            ("500 requests", who, column)
            for who in ("sevenfold Turn.fit", "append only", "LangChain ContextEditing", "deepagents")
            for column in ("cost", "breaks > 5 %")
        ),
    ),
    (
        "fidelity",
        "of what an agent needed in the 30 calls after a recorded compaction, still there: in the real "
        "summary, in our notes, in our summary (both by rule)",
        "{} %, {} %, {} %",
        tuple(
            ("Share that is there", "mean of the kinds", column)
            for column in ("real summary", "our notes", "our summary")
        ),
    ),
    (
        "recall",
        "recall of the evidence among five, questions not tuned on: LongMemEval, LoCoMo sessions",
        "{}, {} (SQLite FTS5 {}, {}; MiniLM embeddings {}, {})",
        tuple(
            (data, who, "held back any@5")
            for who in ("sevenfold hybrid", "SQLite FTS5", "embeddings: MiniLM")
            for data in ("LongMemEval", "LoCoMo, sessions")
        ),
    ),
    (
        "recall_latency",
        "one recall by words and meaning, warm, median at 1,000 / 10,000 / 100,000 memories; the first one "
        "of a new process at 1,000, its imports included",
        "{} / {} / {} ms; {} ms",
        (
            *((WARM, size, "words and vectors p50") for size in ("1000", "10000", "100000")),
            ("Cold recall", "1000", "together"),
        ),
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
        "labelled secrets found, services not tuned on: assignments, a word and a value, glued, bare or "
        "prefixed; "
        "alarms in 382 real memory files, three of them real tokens",
        "{} %, {} %, {} %, {} %; {}",
        (
            *(
                ("Labelled secrets by form", f"kept back, {form}", "found, %")
                for form in ("assignment", "word value", "glued", "bare or prefixed")
            ),
            ("Secrets in real memory files", "all", "alarms"),
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
    (
        "bytes_sent",
        "MB sent by a session of 60 tool calls that return a megabyte, to a simulated provider; the price "
        "is the same",
        "{} without message threads, {} with them",
        (
            ("Bytes sent in a session of 60", "as a session is, no threads", "MB sent"),
            ("Bytes sent in a session of 60", "as a session is, threads", "MB sent"),
        ),
    ),
)
