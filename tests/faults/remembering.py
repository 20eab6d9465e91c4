"""A process that writes memories and prints each one when it is saved, to be run beside others and killed.

remembering.py writing FOLDER STATE WORKER COUNT
remembering.py full FOLDER STATE                       no file may become larger than a few kilobytes
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import SevenfoldError
from sevenfold.core.events import Event, Notice
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.store import MemoryStore

LIMIT = 3_000
END = "the end."


def tell(event: Event) -> None:
    if isinstance(event, Notice):
        print("notice", event.text, flush=True)


def opened(folder: str, state: str, worker: str) -> MemoryStore:
    author = Author("agent", f"session-{worker}")
    return MemoryStore(FolderBackend(Path(folder), Path(state)), SystemClock(), emit=tell, author=author)


def add(store: MemoryStore, name: str, words: str) -> None:
    try:
        saved = store.add(type="project", name=name, description=f"about {name}", body=words)
    except SevenfoldError as error:
        print("failed", error, flush=True)
    else:
        print("saved", saved.path.name, saved.revision, flush=True)


def writing(folder: str, state: str, worker: str, count: str) -> None:
    """New memories of its own, and now and then a new text for the one that all of them write."""
    store = opened(folder, state, worker)
    print("ready", flush=True)
    for number in range(int(count)):
        add(store, f"w{worker}-n{number}", f"worker {worker} number {number} " * 20 + END)
        if number % 3 == 2:
            add(store, "shared", f"by worker {worker} at {number} " * 30 + END)


def full(folder: str, state: str) -> None:
    """First what fits, then what does not."""
    store = opened(folder, state, "0")
    for number in range(60):
        add(store, f"a memory with a long name, number {number}", END)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))
    add(store, "too long for the disk", "The list of ports is long. " * LIMIT)
    add(store, "one line too many for the index", END)
    add(store, "a memory with a long name, number 7", "its new text")


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "writing":
        writing(*words)
    else:
        full(*words)
