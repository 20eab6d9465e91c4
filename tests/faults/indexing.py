"""A process that changes memory files and keeps the search index in step, for tests that disturb it.

indexing.py STATE FOLDER SEED ROUNDS [LIMIT]: a line for each round; LIMIT is how large a file may be.
"""

from __future__ import annotations

import os
import random
import resource
import sys
from pathlib import Path

from memory.search.searching import Bag

from sevenfold.memory.search.index import SearchIndex

WORDS = [f"{a}{b}" for a in ("heron", "plover", "osprey", "dunlin") for b in range(40)]


def listing(folder: Path) -> list[tuple[str, int, int]]:
    found = []
    for path in sorted(folder.iterdir()):
        try:
            about = path.stat()
        except FileNotFoundError:  # another process has just removed it
            continue
        found.append((path.name, about.st_ctime_ns, about.st_size))
    return found


def work(state: Path, folder: Path, seed: int, rounds: int, *, purging: bool) -> None:
    chance = random.Random(seed)
    index = SearchIndex(state, Bag())

    def read(file: str) -> bytes:
        return (folder / file).read_bytes()

    for number in range(rounds):
        own = f"own{os.getpid()}x{number}"
        for file in (f"{seed}-{number % 30}.md", f"{seed}-{chance.randrange(30)}.md"):
            text = " ".join(chance.choices(WORDS, k=200))
            (folder / file).write_text(f"{own} {text}", encoding="utf-8")
        if chance.random() < 0.3:
            (folder / f"{seed}-{chance.randrange(30)}.md").unlink(missing_ok=True)
            (folder / f"{seed}-{number % 30}.md").write_text(own, encoding="utf-8")
        index.refresh(listing(folder), read)
        index.build(read)
        if purging and chance.random() < 0.1:
            index.purge(f"{seed}-{chance.randrange(30)}.md")
            index.refresh(listing(folder), read)
        found = any(
            hit.lexical and hit.file == f"{seed}-{number % 30}.md"
            for hit in index.search(own, 999, silent=False)
        )
        print(number, "found" if found else "lost", index.problem or "well", flush=True)
    index.wait()
    index.close()


if __name__ == "__main__":
    where, memories, *numbers = sys.argv[1:]
    if len(numbers) > 2:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(numbers[2]), int(numbers[2])))
    work(Path(where), Path(memories), *map(int, numbers[:2]), purging=len(numbers) < 3)
