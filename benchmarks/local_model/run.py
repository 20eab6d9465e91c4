"""What a small real model answers to the prompts of extraction, selection, notes and dreams.

python -m benchmarks.local_model.run --weights FILE.gguf [--rounds N] [--json]

Each round is a session of its own on llama.cpp, in which all four happen. Without weights it is skipped.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import anyio
from msgspec.structs import replace

from benchmarks.report import Table, show
from sevenfold.core.events import Event, Failed, Forked, Remembered
from sevenfold.core.messages import Block
from sevenfold.core.protocols import Model
from sevenfold.core.request import Request
from sevenfold.core.transcript import Reply
from sevenfold.layers.l6_dreaming.dreaming import Dreaming
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.topic_file import Type
from sevenfold.models import connect_model
from sevenfold.models.capabilities import ModelAccess
from sevenfold.session.session import Session

WEIGHTS: Final = "SEVENFOLD_LOCAL_WEIGHTS"  # The variable that names the file where no option does
ROUNDS: Final = 3
ANSWER: Final = 96  # Tokens of a reply: what a small model says is long, and nothing is learned from it
WINDOW: Final = 8_192
SAID: Final = (
    "I'm a data engineer in Hamburg, and I prefer tabs over spaces.",
    "From now on answer in one sentence, please.",
    "The audit of the accounts ends on 2026-12-01.",
)
KNOWN: Final[tuple[tuple[str, Type, str, str], ...]] = (
    ("pnpm", "feedback", "Use pnpm instead of npm.", "Use pnpm instead of npm in every repository."),
    ("office", "user", "The user works in Hamburg.", "The user works in the office in Hamburg."),
)
SETTINGS: Final = {
    "recall": {"selector": "model", "timeoutSeconds": 600},
    "notes": {"firstAt": 0, "grownBy": 0, "sectionTokens": 200, "totalTokens": 800},
    "extraction": {"drainSeconds": 900},
    "flags": {"dream": True, "notes": True, "extraction": True},
}
PROMPTS: Final = ("extract", "select", "notes", "dream")
STARTS: Final = {"extract": "extract", "recall": "select", "note": "notes", "dream": "dream"}
"""The beginning of a fork's kind, or of the name of the layer that failed: the prompt."""


class ShortAnswers:
    """A model whose replies end after so many tokens: so small a one goes on to the end of its window."""

    def __init__(self, model: Model) -> None:
        self._model, self.name, self.capabilities = model, model.name, model.capabilities

    async def stream(self, request: Request) -> AsyncGenerator[str | Block | Reply, None]:
        most = min(request.max_tokens or ANSWER, ANSWER)
        async for part in self._model.stream(replace(request, max_tokens=most)):
            yield part


class Tally:
    """Counts how each prompt ended: the events of a session say it."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in PROMPTS}
        self.causes: Counter[str] = Counter()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Forked) and (name := _find_prompt(event.kind)):
            self.counts[name]["answered"] += 1
            self.counts[name]["calls refused"] += event.denied
        elif isinstance(event, Failed):
            name = _find_prompt(event.by)
            if name:
                self.counts[name]["refused"] += 1
                self.causes[f"{name}: {event.cause[:140]}"] += 1
        elif isinstance(event, Remembered) and event.by == "extraction":
            self.counts["extract"]["saved"] += 1


def _find_prompt(kind: str) -> str:
    return next((name for start, name in STARTS.items() if kind.lower().startswith(start)), "")


async def measure(weights: Path, rounds: int) -> Tally:
    tally = Tally()
    model = connect_model(f"local:{weights}", ModelAccess(window=WINDOW))
    try:
        for number in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                await _talk(ShortAnswers(model), Path(folder), SAID[number % len(SAID)], tally)
    finally:
        if close := getattr(model, "close", None):
            await close()
    return tally


async def _talk(model: Model, folder: Path, said: str, tally: Tally) -> None:
    """One session: a turn with recall by the model, notes and an extraction after it, then a dream."""
    project = folder / "project"
    project.mkdir()
    environ = {"HOME": str(folder), "PATH": os.environ.get("PATH", "")}
    async with Session(
        model, project, home=folder / "home", environ=environ, settings=SETTINGS, interactive=True
    ) as session:
        session.subscribe(tally)
        assert session.knowledge.store is not None
        for name, type, about, body in KNOWN:
            session.knowledge.store.add(
                type=type, name=name, description=about, body=body, author=Author("user")
            )
        await session.ask(said)
        await session.tray.drain(900)
        layer = next(one for one in session.turn.layers.rest if isinstance(one, Dreaming))
        ended = await layer.asked(session.request)
        tally.counts["dream"][ended.status] += 1


def run(quick: bool = False, weights: Path | None = None, rounds: int = ROUNDS) -> list[Table]:
    table = Table(
        "A local model and the prompts of the background work",
        *("prompt", "answered", "refused", "calls refused", "saved", "dreams completed"),
    )
    named = weights or (Path(os.environ[WEIGHTS]) if WEIGHTS in os.environ else None)
    if named is None:
        table.notes.append(f"skipped: no weights; name a GGUF file with --weights or {WEIGHTS}")
        return [table]
    tally = anyio.run(measure, named, 1 if quick else rounds)
    for name in PROMPTS:
        counts = tally.counts[name]
        columns = ("answered", "refused", "calls refused", "saved", "completed")
        table.add(name, *(counts[column] for column in columns))
    table.notes += [f"{count} times: {cause}" for cause, count in tally.causes.most_common(8)]
    table.notes += [
        "answered: a reply came and was read to its end; refused: it was none that could be used, and the "
        "layer went on without it; calls refused: tool calls that were not carried out",
        "no round ended with an exception: that would end the benchmark",
    ]
    return [table]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--weights", type=Path, help="a GGUF file")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="sessions")
    parser.add_argument("--quick", action="store_true", help="one session")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    show(run(options.quick, options.weights, options.rounds), as_json=options.json)
    sys.exit(0)
