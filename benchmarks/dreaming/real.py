"""Real memory folders, rebuilt from the shared files, as they are and with copies planted in them."""

from __future__ import annotations

import datetime
import gzip
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from benchmarks.dreaming.folders import topics
from benchmarks.dreaming.measuring import plain
from sevenfold.memory.topic_file import change_topic, read_topic

FILES: Final = Path(__file__).parents[2] / "../shared/data/memory_files_dev.jsonl.gz"
NOW: Final = datetime.datetime(2026, 6, 25, 12).timestamp()
_KINDS: Final = ("memory-dir", "agent-memory")
_BULLET: Final = re.compile(r"^\s*(?:[-*+>]|#+|\d+[.)])\s+")
_NUMBER: Final = re.compile(r"(?<![\w.-])[1-9]\d{0,3}(?![\w.-])")


class Real(msgspec.Struct, frozen=True):
    """One folder as somebody has it."""

    name: str
    files: dict[str, bytes]


def real_folders() -> Iterator[Real]:
    """The folders with an index or topics, the largest first; none when the files are not there."""
    if not FILES.exists():
        return
    found: dict[str, dict[str, bytes]] = {}
    with gzip.open(FILES, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["kind"] in _KINDS:
                path = PurePosixPath(row["path"])
                name = f"{row['repo'].split('/')[1]}/{path.parent.name}"
                found.setdefault(name, {})[path.name] = row["text"].encode("utf-8")
    for name in sorted(found, key=lambda name: -len(found[name])):
        yield Real(name, found[name])


def written(real: Real, place: Path) -> None:
    """The folder on disk; its files are three days old."""
    place.mkdir(parents=True)
    for file, data in real.files.items():
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).write_bytes(data)
        os.utime(place / file, (NOW - 3 * 86_400, NOW - 3 * 86_400))


def plant(place: Path) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Copies of every third memory, and of every third with one number changed.

    All are of one day, so that nothing shows which of two numbers is the newer.
    """
    twins: list[tuple[str, str]] = []
    apart: list[tuple[str, str]] = []
    for at, path in enumerate(list(topics(place))):
        topic = read_topic(path.read_bytes(), path.name)
        number = _NUMBER.search(topic.body)
        copy = place / f"{path.stem}-again.md"
        if not topic.body or at % 3 == 2:
            continue
        if at % 3 == 0:
            body = f"{topic.body}\n\nCopy {at} of this was checked by reader {at * 17 + 3}."
            twins.append((path.name, copy.name))
        elif number is not None:
            other = str(int(number.group()) + 3)
            body = topic.body[: number.start()] + other + topic.body[number.end() :]
            apart.append((path.name, copy.name))
        else:
            continue
        copy.write_bytes(change_topic(topic, name=f"{topic.name} again", body=body))
        os.utime(copy, (NOW - 3 * 86_400, NOW - 3 * 86_400))
    return twins, apart


def sentences_in(place: Path) -> set[str]:
    """Every sentence and heading of the memories of a folder, without markup."""
    found: set[str] = set()
    for path in topics(place):
        topic = read_topic(path.read_bytes(), path.name)
        for part in [*topic.body.split("\n\n"), topic.description]:
            blocks = re.split(r"\n(?=\s*(?:[-*+|#>`]|\d+[.)]))", part)
            for block in blocks:
                text = " ".join(_BULLET.sub("", block).split())
                found.update(plain(one) for one in re.split(r"(?<=[.!?])\s+(?=[A-Z])", text))
    return {one for one in found if len(one) > 3}
