"""What the guard of memory catches, what it lets through, and what a look costs.

python -m benchmarks.guard.run [--quick] [--json]
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing import Pool
from pathlib import Path
from statistics import fmean, quantiles
from typing import Final

from benchmarks.guard import by_source
from benchmarks.guard.instruction_cases import ATTACKS, RULES
from benchmarks.guard.labelled_secrets import FORMS, load_labelled_secrets
from benchmarks.guard.secret_cases import DISGUISES, NOT_SECRETS, Secret, secrets
from benchmarks.guard.texts import conversations, injections, memory_files, texts_of
from benchmarks.guard.token_samples import FORMS as SAMPLE_FORMS
from benchmarks.guard.token_samples import draw_tokens, write_form
from benchmarks.report import Table, arguments, show
from sevenfold.memory.guard.guard import LARGEST, Guard
from sevenfold.memory.guard.injection import find_instructions
from sevenfold.memory.guard.secrets import find_secrets

SOURCES: Final = ("web", "agent", "user")
_HOSTILE: Final = {
    "one letter": "a",
    "beginnings of web tokens": "eyJhbGciOi.",
    "beginnings of private keys": "-----BEGIN PRIVATE KEY-----\n",
    "beginnings of PuTTY keys": "PuTTY-User-Key-File-1:",
    "the word password": "password is ",
    "the word password in Chinese": "密码是",
    "half an order": "ignore all previous ",
    "open comments": "<!-- you ",
    "invisible characters": "\U000e0041",
}


def run(quick: bool = False) -> list[Table]:
    find_secrets("")
    tables = [
        _labelled_secrets(),
        _published_formats(),
        _made_up_secrets(),
        _secrets_in_memories(),
        _secrets_in_conversations(quick),
    ]
    tables += [_labelled(), _own_attacks(), _orders_in_memories(), *by_source.run(quick)]
    return [*tables, _cost(quick), _hostile(quick)]


def _labelled_secrets() -> Table:
    table = Table("Labelled secrets by form", "form", "texts", "found", "found, %")
    rows = load_labelled_secrets()
    for tuned in (True, False):
        for form in FORMS:
            hits = [bool(find_secrets(row.text)) for row in rows if (row.tuned, row.form) == (tuned, form)]
            part = "tuned on" if tuned else "kept back"
            table.add(f"{part}, {form}", len(hits), sum(hits), _percent(hits))
    table.notes += [
        "split by service; identifiers (buckets, account ids, user names) are labelled secret, and pass",
        "most texts labelled as no secret of one service hold a secret of another or a password",
    ]
    return table


def _published_formats() -> Table:
    table = Table("A token of each published format, drawn anew", "form", "tokens", "found", "found, %")
    samples = list(draw_tokens(20_261_116))
    for form in SAMPLE_FORMS:
        hits = [bool(find_secrets(write_form(form, sample))) for sample in samples]
        table.add(form, len(hits), sum(hits), _percent(hits))
    table.notes.append(
        "glued: tokens without a beginning of their own cannot be told from what they stick to"
    )
    return table


def _made_up_secrets() -> Table:
    table = Table("Made-up secrets", "how", "cases", "found, %")
    groups: dict[str, list[Secret]] = {"given away by the words around": []}
    for case in secrets():
        way = case.kind.rsplit(", ", 1)[-1]
        groups.setdefault(way if way in DISGUISES else next(iter(groups)), []).append(case)
    for way, cases in groups.items():
        ours = [bool(find_secrets(case.text)) for case in cases]
        table.add(way, len(cases), _percent(ours))
    ours = [bool(find_secrets(text)) for text in NOT_SECRETS]
    table.add("no secrets (alarms)", len(NOT_SECRETS), _percent(ours))
    table.notes.append("the cases were written beside the detector: they show kinds, not rates")
    return table


def _secrets_in_memories() -> Table:
    table = Table("Secrets in real memory files", "kind", "files", "alarms")
    rows = memory_files()
    where = []
    for kind in dict.fromkeys(kind for _, kind, _ in rows):
        texts = [(number, text) for number, other, text in rows if other == kind]
        found = [(number, find_secrets(text)) for number, text in texts]
        where += [f"row {number}, {one.where}: {one.what}" for number, some in found for one in some]
        table.add(kind, len(texts), sum(bool(some) for _, some in found))
    table.add("all", len(rows), sum(row[2] for row in table.rows))
    table.notes += where or ["skipped: the shared memory files are not beside this checkout"]
    return table


def _secrets_in(path: Path) -> tuple[int, int, list[str]]:
    texts = size = 0
    found = []
    for text in texts_of(path):
        texts, size = texts + 1, size + len(text)
        found += [f"{path.name[:8]}, {one.where}: {one.what}" for one in find_secrets(text[:LARGEST])]
    return texts, size, found


def _secrets_in_conversations(quick: bool) -> Table:
    table = Table("Secrets in real sessions and conversations", "of", "texts", "MB", "alarms")
    files = conversations(quick)
    with Pool() as pool:
        results = pool.map(_secrets_in, files, chunksize=1)
    for name, mine in (("sessions", True), ("conversations", False)):
        some = [r for r, p in zip(results, files, strict=True) if (".jsonl" in p.name) is mine]
        size = sum(size for _, size, _ in some) / 1e6
        table.add(name, sum(n for n, _, _ in some), round(size, 1), sum(len(f) for _, _, f in some))
        table.notes += [one for _, _, found in some for one in found]
    return table


def _labelled() -> Table:
    table = Table("Labelled injections, % held back", "set", "texts", *SOURCES)
    rows = injections()
    for name in dict.fromkeys(row.name for row in rows):
        for attack in (True, False):
            for tuned in (True, False):
                some = [r for r in rows if (r.name, r.attack, r.tuned) == (name, attack, tuned)]
                if some:
                    what = f"{name}, {'attacks' if attack else 'benign'}"
                    half = "tuned on" if tuned else "kept back"
                    held = [_held([r.text for r in some], source) for source in SOURCES]
                    table.add(f"{what}, {half}", len(some), *held)
    table.notes.append(
        "the sets hold attacks on chat assistants, not on memories; the halves share sentences in "
        "translation and in combination, so the half that was kept back is not independent"
    )
    return table


def _own_attacks() -> Table:
    table = Table("Poisoned memories, written for this, % held back", "what", "texts", *SOURCES)
    for what, texts in ATTACKS.items():
        table.add(what, len(texts), *(_held(texts, source) for source in SOURCES))
    table.add("rules and facts (alarms)", len(RULES), *(_held(RULES, source) for source in SOURCES))
    table.notes.append("written beside the detector: they show kinds, not rates")
    return table


def _orders_in_memories() -> Table:
    table = Table("Real memory files held back as orders", "kind", "files", *SOURCES)
    rows = memory_files()
    for kind in dict.fromkeys(kind for _, kind, _ in rows):
        texts = [text for _, other, text in rows if other == kind]
        held = [sum(bool(find_instructions(text, source)) for text in texts) for source in SOURCES]
        table.add(kind, len(texts), *held)
    for number, _, text in rows:
        table.notes += [f"row {number}, {one.where}: {one.what}" for one in find_instructions(text, "web")]
    return table


def _cost(quick: bool) -> Table:
    table = Table("CPU time for a memory of 4 KB, ms", "look", "mean", "p50", "p95", "most")
    texts = [text for _, _, text in memory_files()] or [rule * 40 for rule in RULES]
    whole = "\n".join(texts)
    parts = [whole[at : at + 4_096] for at in range(0, len(whole), 4_096)][: 100 if quick else 400]
    guard = Guard()
    looks: tuple[tuple[str, Callable[[str], object]], ...] = (
        ("secrets", find_secrets),
        ("orders", find_instructions),
        ("Guard.check", guard.check),
    )
    for name, look in looks:
        took = [_milliseconds(look, part) for part in parts]
        cuts = quantiles(took, n=20)
        figures = (fmean(took), cuts[9], cuts[18], max(took))
        table.add(name, *(f"{figure:.2f}" for figure in figures))
    large = [whole[at : at + 100_000] for at in range(0, len(whole) - 100_000, 100_000)] or [whole]
    per = fmean(_milliseconds(find_secrets, part) for part in large)
    table.notes.append(f"secrets in 100,000 characters of memory files: {per:.0f} ms")
    first = "from sevenfold.memory.guard.secrets import find_secrets; find_secrets('')"
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", first], check=True)
    table.notes.append(
        f"a new process that loads everything and looks once: {time.perf_counter() - begin:.2f} s"
    )
    return table


def _hostile(quick: bool) -> Table:
    size = LARGEST // 10 if quick else LARGEST
    table = Table(f"CPU time for hostile texts of {size:,} characters, s", "made of", "secrets", "orders")
    for name, piece in _HOSTILE.items():
        text = (piece * (size // len(piece) + 1))[:size]
        looks = (find_secrets, find_instructions)
        table.add(name, *(f"{_milliseconds(look, text) / 1e3:.2f}" for look in looks))
    return table


def _held(texts: Sequence[str], source: str) -> str:
    return _percent([bool(find_instructions(text, source)) for text in texts])


def _milliseconds(look: Callable[[str], object], text: str) -> float:
    begin = time.process_time()
    look(text)
    return (time.process_time() - begin) * 1e3


def _percent(hits: Sequence[bool]) -> str:
    return f"{100 * fmean(hits):.1f}" if hits else "-"


if __name__ == "__main__":
    options = arguments(__doc__)
    show(run(options.quick), as_json=options.json)
    sys.exit(0)
