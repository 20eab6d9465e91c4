"""Understands the agent's own Write and Edit of a memory, beyond a file with these bytes.

An empty file is a memory that is to be forgotten. A new file about what another one tells already is
news about that one. Anything else is written, with its dates written out and where it comes from.

A person may want memory set aside: "ignore memory" means to work as if it were empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sevenfold.core.errors import Refused
from sevenfold.memory.backend import is_topic
from sevenfold.memory.folder.folder import Saved
from sevenfold.memory.guard.gate import PreparedWrite
from sevenfold.memory.store import MemoryStore
from sevenfold.memory.topic_file import Origin, Topic, read_topic


def redirect_write(
    store: MemoryStore, path: Path, data: bytes, now: float
) -> tuple[Saved | None, str] | None:
    """The sentence about what was done in place of a write; None: it is to be written.

    `Refused` when there is nothing to be done.
    """
    file = store.file_of(path)
    if not is_topic(file):
        return None
    there = path.exists()
    if not data.strip():
        if not there:
            raise Refused(f"{file} is refused: a memory without a text says nothing")
        saved = store.remove(file)
        return saved, f"Removed {file}, and its line in the index. The person can bring it back."
    return None if there else _merged(store, file, data, now)


def _merged(store: MemoryStore, file: str, data: bytes, now: float) -> tuple[Saved | None, str] | None:
    from sevenfold.memory.folder.changes import finish_text, merge_into
    from sevenfold.memory.similarity import find_similar_in_store

    new = read_topic(finish_text(read_topic(data, file), None, now, _origin(store, now)), file)
    like = find_similar_in_store(store, new)
    if like is None:
        return None
    old = like.topic.file
    if like.known:
        return None, f"{old} says so already: nothing was written."
    if not like.same:
        return None
    checked = store.before_write(store.path_of(file), data)  # what is new, as a memory of its own
    if checked.said:
        new = read_topic(finish_text(read_topic(checked.data, file), None, now, _origin(store, now)), file)
    saved = store.changing(lambda desk: merge_into(desk, store.author, old, new))
    told = f"Merged into {old}, which is about the same; {file} was not made."
    return saved, " ".join(filter(None, (told, checked.said, saved.held)))


def prepare_write(store: MemoryStore, path: Path, data: bytes, now: float) -> PreparedWrite:
    """A memory as it is to be written; other files stay as they are."""
    from sevenfold.memory.folder.changes import describe_resolved_dates, finish_text
    from sevenfold.memory.similarity import find_similar_in_store

    file = store.file_of(path)
    if not is_topic(file):
        return PreparedWrite(data)
    new, old = read_topic(data, file), _there(store, file)
    done = finish_text(new, old, now, _origin(store, now))
    after = read_topic(done, file)
    said = [describe_resolved_dates(_text(new), _text(after))]
    if old is None and (like := find_similar_in_store(store, after)) is not None:
        said.append(f"{like.topic.file} is close to this: if it is the same fact, keep one of the two.")
    return PreparedWrite(done, " ".join(filter(None, said)))


def _text(topic: Topic) -> str:
    return f"{topic.description}\n{topic.body}"


def _there(store: MemoryStore, file: str) -> Topic | None:
    return next((one for one in store.topics() if one.file == file), None)


def _origin(store: MemoryStore, now: float) -> Origin:
    from sevenfold.memory.folder.changes import make_origin

    return make_origin(store.author, now)


LONGEST: Final = 4_000  # Characters of a message that are looked at
_MEMORY: Final = (
    r"(?:the\s+|your\s+|my\s+|our\s+|all\s+|any\s+|saved\s+)*(?:memory|memories|what\s+you\s+remember)\b"
    r"(?!-|\s+(?:leak|usage|use|limit|error|warning|footprint|pressure|manage|alloc|safe|address|bound"
    r"|consum|issue|problem|test|bug|constraint|overhead|layout|access|barrier|file\s+format))"
)
_IGNORE: Final = re.compile(
    rf"\b(?:ignore|disregard|(?:do\s+not|don['’]?t)\s+(?:use|consult|look\s+at|rely\s+on|read)"
    rf"|without(?:\s+(?:using|looking\s+at|consulting))?)\s+{_MEMORY}"
    "|(?:忽略|无视|不要(?:使用|参考|用|看)|别(?:参考|用|看)|不用)(?:掉)?(?:你的|所有的?|任何)?记忆",
    re.IGNORECASE,
)
_NOT_IGNORE: Final = re.compile(
    rf"\b(?:stop\s+ignoring|(?:do\s+not|don['’]?t)\s+ignore)\s+{_MEMORY}", re.IGNORECASE
)
_USE: Final = re.compile(
    rf"\b(?:use|consult)\s+{_MEMORY}|(?:重新|可以|继续)(?:使用|参考|用)(?:你的)?记忆", re.IGNORECASE
)


def is_memory_ignored(typed: Iterable[str]) -> bool:
    """True if memory is to be ignored now; `typed` is what the person said, the newest first."""
    for text in typed:
        rest, wanted = _without(_NOT_IGNORE, text[:LONGEST])
        rest, ignored = _without(_IGNORE, rest)
        wanted = max(wanted, _without(_USE, rest)[1])
        if ignored != wanted:
            return ignored > wanted
    return False


def drop_memory_wish(text: str) -> str:
    """The text without a wish that memory be used: "use memory again: when do we deploy?" asks the rest."""
    return re.sub(
        rf"(?i)(?:{_NOT_IGNORE.pattern}|{_USE.pattern})(?:\s+(?:again|now))?\W*", "", text
    ).strip()


def _without(pattern: re.Pattern[str], text: str) -> tuple[str, int]:
    """The text with blanks where it matches, and where the last match ends; -1: there is none."""
    ends = [found.end() for found in pattern.finditer(text)]
    return pattern.sub(lambda found: " " * len(found[0]), text), max(ends, default=-1)
