"""What it costs to compact a full window, ours beside LangChain's and deepagents', summary call included.

python -m benchmarks.compaction.run [--quick] [--json] [--cache DIR]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Final

import anyio

from benchmarks.compaction.accounting import MODEL, Compacted, charged
from benchmarks.compaction.ours import ABLE, FILE, SUMMARY, WAYS, Made, Way, compacted
from benchmarks.fit.environments import CACHE, ROOT, RUN_SECONDS, Missing, Peer, peers, python_of
from benchmarks.fit.peers.driving import SUMMARY as FAKE
from benchmarks.fit.workload import Json, conversation
from benchmarks.report import Table, show
from sevenfold.simulator.cache import TEXT_BYTES

TOKENS: Final = 2_100
"""Of every summary, and of the notes: what recorded summaries come to (those of benchmarks/fidelity) ..."""
ANALYSIS: Final = 150
"""... and the 100 words that our prompt allows for thinking on paper before; whether a model keeps to
that is not measured. The recorded ones, by another prompt, came to 700."""
LENGTHS: Final = (1_000, TOKENS, 4_000, 8_000)
TRIGGER: Final = 170_000
"""Where the others fire: 85 % of this window, which is deepagents' own default."""
GOAL: Final = 5
DRIVERS: Final = {
    "langchain_summarization": ("Conversation", "LangChain"),
    "langchain_whole_summary": ("Whole", "LangChain, whole history"),
    "deepagents_summarization": ("Conversation", "deepagents"),
}
"""Those of `benchmarks.fit.peers` that compact: the class that drives each, and what it is called here."""
NONE: Final = "–"


@dataclass(frozen=True)
class Row:
    """One contender at one length of summary."""

    name: str
    version: str
    compacted: Compacted
    seconds: Sequence[float]


@dataclass(frozen=True)
class Their:
    """What another package would send, and how it was set."""

    peer: Peer
    said: Any

    def row(self, heard: Sequence[Json], tokens: int) -> Row:
        """With a summary of so many tokens in place of the one that its fake model gave."""
        after = [_resized(message, tokens) for message in self.said["after"]]
        made = charged(heard, self.said["calls"], after, tokens)
        return Row(self.name, self.said["version"], made, self.said["seconds"])

    @property
    def name(self) -> str:
        return DRIVERS[self.peer.script][1]

    @property
    def settings(self) -> str:
        told = self.peer.settings
        return f"{self.name}: " + told.replace(" T)", f" {TRIGGER:,})").replace(" T;", f" {TRIGGER:,};")

    @property
    def asks(self) -> bool:
        return bool(self.said["calls"])


def run(quick: bool, cache: Path = CACHE) -> list[Table]:
    messages, repeat = conversation(), 2 if quick else 5
    print("  sevenfold", file=sys.stderr)
    made = [ourselves(way, messages, TOKENS, ANALYSIS, 1 if way.notes else repeat) for way in WAYS]
    first = made[0]
    heard = messages[: first.messages]
    found = list(everyone_else(heard, repeat, cache, quick))
    others = [one for one in found if isinstance(one, Their)]
    ours = [_row(way, one) for way, one in zip(WAYS, made, strict=True)]
    theirs = [one.row(heard, TOKENS) for one in others]
    lengths = by_length(messages, heard, [one for one in others if one.asks])
    settings = [one if isinstance(one, str) else one.settings for one in found]
    return [costs(ours, theirs, settings), left(ours, theirs), lengths]


# --- measuring ------------------------------------------------------------------------------------------


def ourselves(way: Way, messages: list[Json], tokens: int, analysis: int, repeat: int = 1) -> Made:
    """The same each time but for how long it takes: that is the median."""
    made = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            made.append(anyio.run(compacted, way, messages, Path(folder), tokens, analysis))
    took = median(one.seconds for one in made)
    return Made(made[0].compacted, made[0].messages, took)


def everyone_else(heard: Sequence[Json], repeat: int, cache: Path, quick: bool) -> Iterator[Their | str]:
    """The others, one after another; for one that cannot be measured, the reason."""
    known = peers()
    with tempfile.TemporaryDirectory() as folder:
        workload = Path(folder) / "workload.json"
        workload.write_text(json.dumps(heard), encoding="utf-8")
        for peer in (peer for peer in known.peers if peer.script in DRIVERS):
            print(f"  {peer.name}", file=sys.stderr)
            packages = known.environments[peer.environment]["packages"]
            try:
                python = python_of(peer.environment, packages, cache, make=not quick)
                yield Their(peer, _once(peer, python, workload, repeat))
            except Missing as why:
                yield f"{DRIVERS[peer.script][1]} is not in the table: {why}"


def _once(peer: Peer, python: Path, workload: Path, repeat: int) -> Any:
    output = workload.with_name(f"{peer.script}.json")
    driver = f"{peer.script}:{DRIVERS[peer.script][0]}"
    command = [str(python), "-m", "benchmarks.compaction.peers.once", driver, peer.package]
    command += [str(workload), str(output), f"--trigger={TRIGGER}", f"--repeat={repeat}"]
    bare = {"HOME": str(workload.parent), "PYTHONNOUSERSITE": "1"}  # no keys, no tracing
    try:
        subprocess.run(
            command, check=True, cwd=ROOT, env=bare, capture_output=True, text=True, timeout=RUN_SECONDS
        )
    except subprocess.TimeoutExpired as late:
        raise Missing(f"not done after {RUN_SECONDS} s") from late
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines()
        raise Missing(f"failed: {said[-1] if said else error}") from error
    return json.loads(output.read_text(encoding="utf-8"))


def _resized(message: Json, tokens: int) -> Json:
    longer = "." * TEXT_BYTES * tokens
    blocks = [
        {**block, "text": block["text"].replace(FAKE, longer)} if "text" in block else block
        for block in message["content"]
    ]
    return {**message, "content": blocks}


def _row(way: Way, made: Made) -> Row:
    return Row(way.name, version("sevenfold"), made.compacted, [made.seconds])


# --- showing --------------------------------------------------------------------------------------------


def costs(ours: Sequence[Row], theirs: Sequence[Row], settings: Sequence[str]) -> Table:
    before, own = ours[0].compacted.before, ours[0].compacted
    table = Table(
        f"One compaction of {before:,} tokens into a summary of {TOKENS:,}, in thousand base-price tokens",
        "who",
        "version",
        "calls",
        "input K",
        "live prefix %",
        "read from cache %",
        "output K",
        "calls cost",
        "read after K",
        "written after K",
        "cost after",
        "cost",
        "USD",
        "× ours",
        "own ms",
    )
    for row in (*ours, *theirs):
        one, calls, after = row.compacted, row.compacted.calls, row.compacted.after
        table.add(
            row.name,
            row.version,
            calls.requests,
            _thousand(calls.prompt),
            _percent(one.shared, calls.prompt),
            _percent(calls.tokens.cache_read, calls.prompt),
            _thousand(calls.tokens.output),
            _thousand(calls.units),
            _thousand(after.tokens.cache_read),
            _thousand(after.tokens.cache_write_5m),
            _thousand(after.units),
            _thousand(one.units),
            f"{one.cost:.3f}",
            round(one.units / own.units, 2),
            round(1000 * median(row.seconds), 1),
        )
    table.notes += [*_verdicts(own, theirs), *settings, *COST_NOTES]
    return table


def _verdicts(own: Compacted, theirs: Sequence[Row]) -> Iterator[str]:
    for row in theirs:
        times = row.compacted.units / own.units
        if not row.compacted.calls.requests:
            yield (
                f"{row.name} asked no model: of what it removes it looks at the last 4,000 tokens, found "
                "no message of the user there to begin with, and put a sentence in place of everything; "
                "it is the cheapest, because nothing is left, and no measure for the goal"
            )
            continue
        met = "met" if times >= GOAL else "not met"
        yield f"goal, at most 1/{GOAL} of {row.name}: {met} (1/{times:.1f})"


def left(ours: Sequence[Row], theirs: Sequence[Row]) -> Table:
    table = Table(
        "What the next request holds",
        "who",
        "tokens K",
        "of it conversation K",
        "user's messages, word for word",
    )
    for row in (*ours, *theirs):
        one = row.compacted
        whole, frame = one.after.prompt, ours[0].compacted.after.tokens.cache_read
        words = f"{one.told} of {one.said}"
        table.add(row.name, _thousand(whole), _thousand(whole - frame), words)
    table.notes += [
        "looked for in the text of the request, spaces at the ends apart; the fake summary has none of "
        "them, so for the others these are the messages they keep; a real summary may quote some",
        "tokens are no measure of what is worth keeping: benchmarks/fidelity looks at that",
    ]
    return table


def by_length(messages: list[Json], heard: Sequence[Json], others: Sequence[Their]) -> Table:
    names = [one.name for one in others]
    table = Table(
        "The same by length of the summary, in thousand base-price tokens",
        "summary tokens",
        "ours",
        "without analysis",
        *names,
        *(f"{name} / ours" for name in names),
        *(f"{name} / without analysis" for name in names),
    )
    for tokens in LENGTHS:
        ours = [
            ourselves(SUMMARY, messages, tokens, analysis).compacted.units for analysis in (ANALYSIS, 0)
        ]
        theirs = [one.row(heard, tokens).compacted.units for one in others]
        ratios = [round(units / own, 2) for own in ours for units in theirs]
        table.add(tokens, *map(_thousand, (*ours, *theirs)), *ratios)
    table.notes += [
        f"our prompt asks for {ANALYSIS} tokens or so of thinking on paper before the summary, which are "
        "paid for and thrown away; the others' prompts do not",
        "a token more costs everybody 5 to say and 1.25 to keep, so a longer summary evens out everything",
    ]
    return table


COST_NOTES: Final = (
    f"prices of {MODEL}, window {ABLE.window:,}: reads 0.1, writes 1.25, output 5; all requests went "
    "through the same simulated provider, whose ledger these figures are",
    "a compaction costs its calls and the first request after it, whose reply is not counted; the request "
    "before it is in the cache, except where it says cold",
    "live prefix: the part of the calls' input that is, byte for byte, the beginning of the request before",
    f"output: ours with {ANALYSIS} tokens of analysis before the summary, as our prompt asks; the others' "
    "prompts ask for none",
    "notes: all updates since the conversation began are counted, by a model that writes as little as it "
    f"can ({TOKENS:,} tokens in the end); they have other uses, and at the moment itself nothing is asked",
    f"files shown again: 5 of {FILE:,} tokens each, as the policy `specified` does where it finds them on "
    "disk (`balanced` gives parts of 15 files, 9,000 tokens at most); the others leave reading them again "
    "to the agent, which costs the same tokens and a request each",
    "own ms: without the fake model; ours writes the transcript to disk and measures what was lost in it; "
    "deepagents writes what leaves to a file",
)


def _percent(part: int, of: int) -> float | str:
    return round(100 * part / of, 1) if of else NONE


def _thousand(tokens: float) -> float:
    return round(tokens / 1000, 1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="fewer repetitions, only environments that exist"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where environments are kept")
    return parser.parse_args()


if __name__ == "__main__":
    options = arguments()
    show(run(options.quick, options.cache), as_json=options.json)
