"""What is saved of conversations for which it is known what should be: coverage, precision and junk.

python -m benchmarks.extraction.run [--model NAME] [--persona NAME]… [--sessions N] [--examples N]
                                    [--quick] [--json]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Final

import anyio
import msgspec

from benchmarks.extraction.coding import coding_table
from benchmarks.extraction.fit import held_out_table
from benchmarks.extraction.learning import Learner, Looked, Saved
from benchmarks.extraction.matching import LENIENT, STRICT, covered, matched, words
from benchmarks.extraction.personas import TUNED, Gold, Session, names, sessions
from benchmarks.report import Table, show
from sevenfold.models import connect_model
from sevenfold.models.capabilities import ANTHROPIC_URL, OPENAI_URL, ModelAccess
from sevenfold.settings.environment import Environment

QUICK: Final = 60
EXAMPLES: Final = 12
OFFLINE: Final = "offline"


class Judged(msgspec.Struct, frozen=True):
    """A session, what was saved of it, and how well each matches."""

    session: Session
    looked: Looked
    covered: tuple[float, ...]
    """Of each gold memory, the share of its words in the best saved one."""
    matched: tuple[float, ...]
    """Of each saved memory, how well it fits the gold one that it fits best."""
    supported: tuple[bool, ...]
    """Of each saved memory, whether the user typed the words it rests on."""


def judged(session: Session, looked: Looked) -> Judged:
    gold = [words(one.text) for one in session.gold]
    saved = [words(one.text) for one in looked.saved]
    typed = " ".join(" ".join(text.split()) for who, text in session.turns if who == "user")
    return Judged(
        session,
        looked,
        tuple(max((covered(g, s) for s in saved), default=0.0) for g in gold),
        tuple(max((matched(s, g) for g in gold), default=0.0) for s in saved),
        tuple(_is_typed(one, typed) for one in looked.saved),
    )


def _is_typed(saved: Saved, typed: str) -> bool:
    """Whether its quote was typed; of one that was cut, its beginning."""
    quote = " ".join(saved.quote.split()).removesuffix("…").strip()
    plain = typed.replace("“", "‘").replace("”", "’")
    return bool(quote) and (quote in typed or quote in plain)


def measured(way: tuple[str, bool], model: str, most: int | None) -> list[Judged]:
    """One persona, by a fork or lean, session after session, into one memory folder."""
    return anyio.run(_measured, *way, model, most)


async def _measured(name: str, lean: bool, model: str, most: int | None) -> list[Judged]:
    connected = connect_model(model, find_access())
    with tempfile.TemporaryDirectory() as folder:
        learner = Learner(connected, Path(folder), lean=lean)
        return [judged(one, await learner.look(one)) for one in sessions(name)[:most]]


def find_access() -> ModelAccess:
    env = Environment.read()
    return ModelAccess(
        anthropic_key=env.anthropic_key,
        anthropic_token=env.anthropic_token,
        anthropic_base_url=env.anthropic_base_url or ANTHROPIC_URL,
        openai_key=env.openai_key,
        openai_base_url=env.openai_base_url or OPENAI_URL,
        window=env.window,
    )


def run(
    quick: bool = False,
    model: str = OFFLINE,
    personas: Sequence[str] = (),
    most: int | None = None,
    examples: int = EXAMPLES,
) -> list[Table]:
    chosen = [name for name in names() if not personas or name in personas]
    if not chosen:
        empty = Table("What is saved of conversations", "persona")
        empty.notes.append("skipped: the shared personas are not beside this checkout")
        return [empty]
    most = min(most or QUICK, QUICK) if quick else most
    work = partial(measured, model=model, most=most)
    ways = [(name, lean) for lean in (False, True) for name in chosen]
    if model == OFFLINE:
        with Pool() as pool:
            found = pool.map(work, ways, chunksize=1)
    else:
        found = [work(way) for way in ways]
    parts, lean = found[: len(chosen)], found[len(chosen) :]
    by_name = dict(zip(chosen, parts, strict=True))
    kept_back = [one for name in chosen if name not in TUNED for one in by_name[name]]
    return [
        _personas(by_name, model),
        _against_fork(by_name, dict(zip(chosen, lean, strict=True)), model),
        *([held_out_table(), coding_table(quick)] if model == OFFLINE else []),
        _coverage(kept_back or parts[0], "kept back" if kept_back else "tuned on"),
        _precision(kept_back or parts[0], "kept back" if kept_back else "tuned on"),
        *_examples(kept_back or parts[0], examples),
    ]


def _personas(by_name: dict[str, list[Judged]], model: str) -> Table:
    table = Table(
        f"{model}: all personas, %",
        *("persona", "sessions", "gold", "of the user's words", "saved"),
        *("covered strict", "lenient", "of the user's strict", "lenient"),
        *("precision strict", "lenient", "typed", "junk"),
    )
    for name, found in by_name.items():
        label = f"{name} (tuned on)" if name in TUNED else name
        table.add(label, *_figures(found))
    table.notes += [
        f"covered: at least {STRICT:.0%} (lenient {LENIENT:.0%}) of the words of a gold memory stand in "
        "one saved memory of the same session",
        "precision: the same between a saved memory and any gold memory of its session, either way round, "
        "and the user typed the words it rests on",
        "typed: the quote is the user's own; junk: saved memories of sessions that were put in as noise",
    ]
    return table


def _against_fork(forked: dict[str, list[Judged]], lean: dict[str, list[Judged]], model: str) -> Table:
    """The same sessions by a request of its own, which holds what was said and no more."""
    table = Table(
        f"{model}: lean against the fork, the same sessions",
        *("persona", "saved by fork", "lean", "missed by lean", "by lean alone"),
        *("covered strict % fork", "lean", "precision strict % fork", "lean"),
        *("tokens a session fork", "lean"),
    )
    for name, found in forked.items():
        ways = (found, lean[name])
        texts = [
            Counter((one.session.name, s.text) for one in way for s in one.looked.saved) for way in ways
        ]
        figures = [_figures(way) for way in ways]
        tokens = [sum(one.looked.tokens for one in way) // max(1, len(way)) for way in ways]
        counts = (each.total() for each in (*texts, texts[0] - texts[1], texts[1] - texts[0]))
        table.add(
            name, *counts, *(f[column] for column in (4, 8) for f in figures), *(f"{n:,}" for n in tokens)
        )
    table.notes += [
        "missed: memories of a session, word for word, that only the fork saved",
        "in these conversations no tools are called, so a lean request leaves out the system prompt alone; "
        "in coding sessions it also leaves out what tools returned, which is no source for a memory",
    ]
    return table


def _figures(found: Sequence[Judged]) -> list[str | int]:
    gold = [(g, c) for one in found for g, c in zip(one.session.gold, one.covered, strict=True)]
    own = [(g, c) for g, c in gold if g.by_user]
    saved = [
        (m if typed else 0.0, typed, one.session.is_noise)
        for one in found
        for m, typed in zip(one.matched, one.supported, strict=True)
    ]
    return [
        len(found),
        len(gold),
        len(own),
        len(saved),
        *(_part([c >= least for _, c in some]) for some in (gold, own) for least in (STRICT, LENIENT)),
        *(_part([m >= least for m, _, _ in saved]) for least in (STRICT, LENIENT)),
        _part([typed for _, typed, _ in saved]),
        _part([noise for _, _, noise in saved]),
    ]


def _part(flags: Sequence[bool]) -> str:
    return f"{100 * sum(flags) / len(flags):.1f}" if flags else "-"


def _coverage(found: Sequence[Judged], which: str) -> Table:
    table = Table(
        f"Coverage by type of gold memory, personas {which}, %",
        "type",
        "said by",
        "gold",
        "strict",
        "lenient",
    )
    rows: dict[tuple[str, str], list[float]] = {}
    for one in found:
        for gold, part in zip(one.session.gold, one.covered, strict=True):
            rows.setdefault((gold.type, "user" if gold.by_user else "assistant"), []).append(part)
    for (type, by), parts in sorted(rows.items()):
        least = (_part([part >= limit for part in parts]) for limit in (STRICT, LENIENT))
        table.add(type, by, len(parts), *least)
    table.notes.append(
        "what the assistant said is no source for the offline engine, whatever the user made of it later"
    )
    return table


def _precision(found: Sequence[Judged], which: str) -> Table:
    table = Table(
        f"Precision by type of saved memory, personas {which}, %",
        *("type", "saved", "strict", "lenient", "in noise"),
    )
    rows: dict[str, list[tuple[float, bool]]] = {}
    for one in found:
        for saved, part in zip(one.looked.saved, one.matched, strict=True):
            rows.setdefault(saved.type, []).append((part, one.session.is_noise))
    for type, parts in sorted(rows.items()):
        least = (_part([part >= limit for part, _ in parts]) for limit in (STRICT, LENIENT))
        table.add(type, len(parts), *least, _part([noise for _, noise in parts]))
    refused = Counter(kind for one in found for kind in one.looked.refused)
    said = ", ".join(f"{count} {kind}" for kind, count in refused.most_common()) or "none"
    steps = sum(one.looked.steps for one in found) / max(1, len(found))
    table.notes.append(f"writes that were refused: {said}; {steps:.2f} replies a session")
    return table


def _examples(found: Sequence[Judged], most: int) -> list[Table]:
    chance = random.Random(7)
    missed = Table("Missed, said by the user (a sample)", "type", "gold memory", "covered %")
    extra = Table("Saved without a gold memory (a sample)", "type", "saved", "match %")
    gone: list[tuple[Gold, float]] = [
        (gold, part)
        for one in found
        for gold, part in zip(one.session.gold, one.covered, strict=True)
        if gold.by_user and part < LENIENT
    ]
    junk = [
        (saved, part)
        for one in found
        for saved, part in zip(one.looked.saved, one.matched, strict=True)
        if part < LENIENT
    ]
    for gold, part in chance.sample(gone, min(most, len(gone))):
        missed.add(gold.type, _line(gold.text), f"{100 * part:.0f}")
    for saved, part in chance.sample(junk, min(most, len(junk))):
        extra.add(saved.type, _line(saved.text), f"{100 * part:.0f}")
    return [missed, extra] if most else []


def _line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 110 else f"{flat[:109]}…"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default=OFFLINE, help="any name that `sevenfold --model` takes")
    parser.add_argument("--persona", action="append", default=[], help="only this one; may be repeated")
    parser.add_argument("--sessions", type=int, help="only so many of each persona")
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="misses that are printed")
    parser.add_argument("--quick", action="store_true", help="fewer sessions")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    tables = run(options.quick, options.model, options.persona, options.sessions, options.examples)
    show(tables, as_json=options.json)
    sys.exit(0)
