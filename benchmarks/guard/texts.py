"""The real texts the guard is measured on: memory files, conversations, sessions, labelled injections."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import msgspec

DATA: Final = Path(__file__).parents[2] / "../shared/data"
_SHORTEST: Final = 20
_NOT_TEXT: Final = frozenset(
    ("signature", "uuid", "parentUuid", "id", "data", "thinkingMetadata", "requestId", "messageId")
)


class Labelled(msgspec.Struct, frozen=True):
    """A text that someone else labelled, and whether the guard was tuned on its half."""

    name: str
    text: str
    attack: bool
    tuned: bool


def memory_files() -> list[tuple[int, str, str]]:
    """Line in the data file, kind and text of each real memory file."""
    path = DATA / "memory_files_dev.jsonl.gz"
    if not path.exists():
        return []
    with _opened(path) as lines:
        rows = [json.loads(line) for line in lines]
    return [(number, row["kind"], row["text"]) for number, row in enumerate(rows, 1)]


def injections() -> list[Labelled]:
    """Both labelled sets; which half a row is in depends on its id alone."""
    out = []
    for name, key, column in (("deepset", "id", "text"), ("giskard", "index", "prompt")):
        path = DATA / "injections" / f"{name}.csv"
        if path.exists():
            with path.open(encoding="utf-8-sig", newline="") as file:
                for row in csv.DictReader(file):
                    own = row[key] if name == "deepset" else f"g{row[key]}"
                    attack = row.get("label", "1") == "1"
                    out.append(Labelled(name, row[column], attack, _half(own) == 0))
    return out


def _half(own: str) -> int:
    return hashlib.sha256(own.encode()).digest()[0] % 2


def conversations(quick: bool) -> list[Path]:
    """Files with texts that people and agents wrote to each other."""
    sessions = sorted((DATA / "sessions").glob("*.jsonl.gz"))
    sessions += sorted((DATA / "sessions_2").glob("*/*.jsonl.gz"))
    others = [*sorted((DATA / "realmem").glob("*.json.gz")), DATA / "locomo/locomo_dev.json"]
    others.append(DATA / "longmemeval/oracle_dev.json.gz")
    return [*sessions[: 3 if quick else None], *(path for path in others if path.exists())]


def texts_of(path: Path) -> Iterator[str]:
    """Every different text in a file of conversations."""
    seen: set[str] = set()
    with _opened(path) as file:
        whole = _read_lines(file) if ".jsonl" in path.name else [json.load(file)]
        for value in whole:
            for text in _strings(value):
                if text not in seen:
                    seen.add(text)
                    yield text


def _read_lines(file: IO[str]) -> Iterator[Any]:
    for line in file:
        try:
            yield json.loads(line)
        except ValueError:  # some recorded sessions have broken lines
            continue


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if len(value) > _SHORTEST:
            yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in _NOT_TEXT:
                yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")
