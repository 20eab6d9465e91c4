"""What a small real model answers to the prompts of extraction, selection, notes and dreams.

python -m benchmarks.local_model.run --weights FILE.gguf [--rounds N] [--json]

Each round is a session of its own on llama.cpp, in which all four happen, and a second one on the same
words whose extraction is a lean request. Without weights it is skipped.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Final

import anyio
from msgspec.structs import replace

from benchmarks.report import Table, show
from sevenfold.core.events import Event, Failed, Forked, Remembered, Repaired
from sevenfold.core.messages import Block
from sevenfold.core.protocols import Model
from sevenfold.core.request import Request
from sevenfold.core.transcript import Reply
from sevenfold.layers.l6_dreaming.dreaming import Dreaming
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.similarity import find_similar
from sevenfold.memory.topic_file import Topic, Type, read_topic
from sevenfold.models import connect_model
from sevenfold.models.capabilities import ModelAccess
from sevenfold.session.session import Session

WEIGHTS: Final = "SEVENFOLD_LOCAL_WEIGHTS"  # The variable that names the file where no option does
ROUNDS: Final = 12
ANSWER: Final = 128  # Tokens of a reply: what a small model says is long, and nothing is learned from it
WINDOW: Final = 8_192
SECONDS: Final = 900.0
SAID: Final = (
    "I'm a data engineer in Hamburg, and I prefer tabs over spaces.",
    "From now on answer in one sentence, please.",
    "The audit of the accounts ends on 2026-12-01.",
    "We decided to use Postgres instead of Mongo.",
    "Remember that the dashboards are in the Grafana folder payments.",
    "Never push to main directly, always open a pull request.",
    "My team is called Heron and I am new to React.",
    "The release freeze begins on 2026-11-30.",
    "Always run the slow tests before a release.",
    "I like short commit messages with the ticket number in front.",
    "The wedding of Maria in Hamburg is on 2027-03-14.",
    "We ship every Tuesday, because support is there then.",
)
KNOWN: Final[tuple[tuple[str, Type, str, str], ...]] = (
    ("pnpm", "feedback", "Use pnpm instead of npm.", "Use pnpm instead of npm in every repository."),
    ("office", "user", "The user works in Hamburg.", "The user works in the office in Hamburg."),
)
SETTINGS: Final = {
    "recall": {"selector": "model", "timeoutSeconds": 600},
    "notes": {"firstAt": 0, "grownBy": 0, "sectionTokens": 200, "totalTokens": 800},
    "extraction": {"drainSeconds": SECONDS, "leastRequests": 0},
    "flags": {"dream": True, "notes": True, "extraction": True},
    "sideWork": "fork",
}
LEAN: Final = {
    **SETTINGS,
    "flags": {"dream": False, "notes": False, "recall": False, "extraction": True},
    "sideWork": "small",
}
PROMPTS: Final = ("extract", "extract, lean", "select", "notes", "dream")
OUTCOMES: Final = ("parsed", "repaired", "refused", "crashed")
STARTS: Final = {"extract": "extract", "recall": "select", "note": "notes", "dream": "dream"}
"""The beginning of a fork's kind, or of the name of the layer that failed: the prompt."""
_CRASH: Final = re.compile(r"[A-Za-z_][\w.]*\(.*\)\Z", re.DOTALL)
"""An error that no layer expected is told as Python shows it."""


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
        self.saved: dict[str, list[list[Topic]]] = {"fork": [], "lean": []}
        self.lean = False
        self._ended: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case Forked(kind=kind, denied=denied) if name := self._find(kind):
                self.counts[name]["replies"] += event.steps
                self.counts[name]["calls refused"] += denied
                self._ended.setdefault(name, "parsed")
            case Failed(by=by, cause=cause) if name := self._find(by):
                self._ended[name] = "crashed" if _CRASH.match(cause) else "refused"
                self.causes[f"{name}: {cause[:120]}"] += 1
            case Repaired(by=by, what=what) if name := self._find(by):
                self._ended[name] = "repaired"
                self.causes[f"{name} repaired: {what[:120]}"] += 1
            case Remembered(by="extraction"):
                self.counts[self._find("extract")]["saved"] += 1
            case _:
                pass

    def crash(self, error: Exception) -> None:
        """An error that left the session itself."""
        name = PROMPTS[1] if self.lean else "dream"
        self._ended[name] = "crashed"
        self.causes[f"{name}: {error!r}"[:160]] += 1

    def end_round(self) -> None:
        """Each prompt of a round counts once, as it ended last."""
        for name, outcome in self._ended.items():
            self.counts[name][outcome] += 1
        self._ended.clear()

    def _find(self, kind: str) -> str:
        lower = kind.lower()
        name = next((name for start, name in STARTS.items() if lower.startswith(start)), "")
        return PROMPTS[1] if name == "extract" and self.lean else name


async def measure(model: Model, rounds: int) -> Tally:
    """One way after the other, in a folder with the same name every time: the server keeps its prefix."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as top:
        for tally.lean in (False, True):
            for number in range(rounds):
                folder = Path(top) / "round"
                try:
                    saved = await _talk(model, folder, SAID[number % len(SAID)], tally)
                except Exception as error:  # noqa: BLE001 -- counted: the next round goes on
                    tally.crash(error)
                    saved = []
                tally.saved["lean" if tally.lean else "fork"].append(saved)
                tally.end_round()
                shutil.rmtree(folder, ignore_errors=True)
                print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return tally


async def measure_local(weights: Path, rounds: int) -> Tally:
    model = connect_model(f"local:{weights}", ModelAccess(window=WINDOW))
    try:
        return await measure(ShortAnswers(model), rounds)
    finally:
        if close := getattr(model, "close", None):
            await close()


async def _talk(model: Model, folder: Path, said: str, tally: Tally) -> list[Topic]:
    """One session: a turn with recall by the model, notes and an extraction after it, then a dream.

    Lean: only the turn and the extraction. What the extraction saved is handed back.
    """
    project = folder / "project"
    project.mkdir(parents=True)
    environ = {"HOME": str(folder), "PATH": os.environ.get("PATH", "")}
    settings = LEAN if tally.lean else SETTINGS
    async with Session(
        model, project, home=folder / "home", environ=environ, settings=settings, interactive=True
    ) as session:
        session.subscribe(tally)
        store = session.knowledge.store
        assert store is not None
        for name, type, about, body in KNOWN:
            store.add(type=type, name=name, description=about, body=body, author=Author("user"))
        await session.ask(said)
        await session.tray.drain(SECONDS)
        saved = [one for one in store.topics() if one.name not in {known[0] for known in KNOWN}]
        if not tally.lean:
            layer = next(one for one in session.turn.layers.rest if isinstance(one, Dreaming))
            ended = await layer.asked(session.request)
            tally.counts["dream"][f"dream {ended.status}"] += 1
        return saved


def count_same(some: Iterable[Topic], others: list[Topic]) -> int:
    """The memories that the rule of near-duplicates takes for one of the others."""
    found = (find_similar(read_topic(one.data, f"other/{one.file}"), others) for one in some)
    return sum(like is not None and (like.known or like.same) for like in found)


def run(quick: bool = False, weights: Path | None = None, rounds: int = ROUNDS) -> list[Table]:
    columns = ("prompt", "rounds", *OUTCOMES, "replies", "calls refused", "saved")
    table = Table("A local model and the prompts of the background work", *columns)
    ways = Table("Extraction by a fork and by a lean request, on the same sessions", *_WAYS)
    rounds = 1 if quick else rounds
    offline = anyio.run(measure, connect_model("offline", ModelAccess()), rounds)
    ways.add("offline engine", *_compare(offline, rounds))
    named = weights or (Path(os.environ[WEIGHTS]) if WEIGHTS in os.environ else None)
    if named is None:
        table.notes.append(f"skipped: no weights; name a GGUF file with --weights or {WEIGHTS}")
        return [table, ways]
    tally = anyio.run(measure_local, named, rounds)
    for name in PROMPTS:
        counts = tally.counts[name]
        total = sum(counts[one] for one in OUTCOMES)
        table.add(name, total, *(counts[one] for one in (*OUTCOMES, "replies", "calls refused", "saved")))
    ways.add(named.stem, *_compare(tally, rounds))
    table.notes += [f"{count} times: {cause}" for cause, count in tally.causes.most_common(10)]
    table.notes += NOTES
    return [table, ways]


_WAYS: Final = (
    "model", "sessions", "read: fork", "read: lean", "saved: fork", "saved: lean", "of the fork's in lean",
    "of the lean's in fork",
)  # fmt: skip
NOTES: Final = (
    "parsed: the answer was read to its end (nothing to save is an answer); repaired: it was not in the "
    "form asked for and was used; refused: it could not be used, the layer said so and went on without it; "
    "crashed: an error that nobody expected. Each prompt of a round counts once",
    f"a reply ends after {ANSWER} tokens, so that many are refused as cut off",
)


def _compare(tally: Tally, rounds: int) -> tuple[int, ...]:
    """The columns of a row: answers that could be read, memories saved, and those that both ways saved."""
    fork, lean = tally.counts["extract"], tally.counts["extract, lean"]
    pairs = list(zip(tally.saved["fork"], tally.saved["lean"], strict=True))
    return (
        rounds,
        *(one["parsed"] + one["repaired"] for one in (fork, lean)),
        *(sum(map(len, tally.saved[way])) for way in ("fork", "lean")),
        sum(count_same(a, b) for a, b in pairs),
        sum(count_same(b, a) for a, b in pairs),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--weights", type=Path, help="a GGUF file")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="sessions")
    parser.add_argument("--quick", action="store_true", help="one session")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    show(run(options.quick, options.weights, options.rounds), as_json=options.json)
    sys.exit(0)
