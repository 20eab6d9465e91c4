"""What the agent's own Write and Edit of a memory mean, beyond a file with these bytes.

An empty file is a memory that is to be forgotten. A new file about what another one tells already is
news about that one. Anything else is written, with its dates written out and where it comes from.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from sevenfold.errors import Refused
from sevenfold.memory.folder.desk import Saved
from sevenfold.memory.folder.files import MemoryFiles
from sevenfold.memory.folder.finishing import finished, origin_of, written_out
from sevenfold.memory.folder.listing import is_topic
from sevenfold.memory.repeating import resemblance
from sevenfold.memory.store import MemoryStore
from sevenfold.memory.topic import Origin, Topic, read_topic


class Ready(msgspec.Struct, frozen=True):
    """What is to be written, and what the agent should know about it."""

    data: bytes
    said: str = ""


def instead(
    store: MemoryStore, path: Path, data: bytes, now: float
) -> tuple[Saved | None, str] | None:
    """What was done in place of a write, in a sentence too; None: it is to be written.

    `Refused` when there is nothing to be done.
    """
    file = MemoryFiles(store.folder).file_of(path)
    if not is_topic(file):
        return None
    there = path.exists()
    if not data.strip():
        if not there:
            raise Refused(f"{file} is refused: a memory without a text says nothing")
        saved = store.remove(file)
        return saved, f"Removed {file}, and its line in the index. The person can bring it back."
    return None if there else _merged(store, file, data, now)


def _merged(
    store: MemoryStore, file: str, data: bytes, now: float
) -> tuple[Saved | None, str] | None:
    new = read_topic(finished(read_topic(data, file), None, now, _origin(store, now)), file)
    like = resemblance(store, new)
    if like is None:
        return None
    old = like.topic.file
    if like.known:
        return None, f"{old} says so already: nothing was written."
    if not like.same:
        return None
    from sevenfold.memory.folder.writing import merged

    store.before_write(store.folder / file, data)
    saved = store.changing(lambda desk: merged(desk, store.author, old, new))
    return saved, f"Merged into {old}, which is about the same; {file} was not made."


def ready(store: MemoryStore, path: Path, data: bytes, now: float) -> Ready:
    """A memory as it is to be written; other files stay as they are."""
    file = MemoryFiles(store.folder).file_of(path)
    if not is_topic(file):
        return Ready(data)
    new, old = read_topic(data, file), _there(store, file)
    done = finished(new, old, now, _origin(store, now))
    after = read_topic(done, file)
    said = [written_out(_text(new), _text(after))]
    if old is None and (like := resemblance(store, after)) is not None:
        said.append(
            f"{like.topic.file} is close to this: if it is the same fact, keep one of the two."
        )
    return Ready(done, " ".join(filter(None, said)))


def _text(topic: Topic) -> str:
    return f"{topic.description}\n{topic.body}"


def _there(store: MemoryStore, file: str) -> Topic | None:
    return next((one for one in store.topics() if one.file == file), None)


def _origin(store: MemoryStore, now: float) -> Origin:
    return origin_of(store.author, now)
