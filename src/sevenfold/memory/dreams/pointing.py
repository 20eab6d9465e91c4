"""What the index becomes with a dream: all changes of it in one, lines for all memories, within limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sevenfold.errors import Refused, StorageFailure
from sevenfold.memory.dreams.draft import Draft, Kept
from sevenfold.memory.dreams.facts import Fact, Stated, meaning, same_words
from sevenfold.memory.dreams.keeping import with_facts
from sevenfold.memory.dreams.merging import Conflict, merged_lines
from sevenfold.memory.dreams.shelf import Shelf
from sevenfold.memory.folder.desk import Desk
from sevenfold.memory.folder.files import HEAD
from sevenfold.memory.folder.naming import INDEX_NAME, key
from sevenfold.memory.index import LINES, Pointed, missing, over_limit, pointer_line, reconciled
from sevenfold.memory.index_rows import Row, pointers_of, rows_of
from sevenfold.memory.indexing import ARCHIVE, is_listed
from sevenfold.memory.topic import Topic, read_topic

_BULLETS: Final = "-*+"


def joined_index(draft: Draft, before: bytes | None, dreamt: bytes | None) -> str:
    """The dream's index with what others wrote into it meanwhile."""
    old, new, now = before or b"", dreamt, draft.now.get(INDEX_NAME, b"")
    if new is None or new in (old, now):
        return _text(now)
    if now == old:
        return _text(new)
    merged = merged_lines(old, new, now)
    if merged is None:
        why = "changed meanwhile in the same lines: the dream's change is dropped"
        draft.conflicts.append(Conflict(INDEX_NAME, why))
    return _text(now if merged is None else merged)


def keep_lines(draft: Draft, text: str) -> str:
    """The index with the lines that only it had: what a topic file says is accounted for there."""
    now = _text(draft.now.get(INDEX_NAME, b""))
    left = {row.text.strip() for row in rows_of(text)}
    gone = [row for row in rows_of(now) if row.text.strip() and row.text.strip() not in left]
    if not gone:
        return text
    said = Shelf({INDEX_NAME: text.encode("utf-8", "replace")})
    before = Shelf({file: data for file, data in draft.now.items() if file in draft.touched})
    after = draft.afterwards()
    for row in gone:
        for fact, into in _facts(draft, row):
            plain = same_words(fact.text)
            one = Stated(fact, plain, meaning(fact.text), 0, frozenset(), frozenset())
            known = before.holder(one) or draft.others().holder(one) or said.holder(one)
            if not one.meaning.empty and not known and after.account(one, draft.explained) is None:
                text = _kept(draft, text, fact, row, into)
    return text


def _facts(draft: Draft, row: Row) -> list[tuple[Fact, str | None]]:
    """What a line says, and the memory it points to, if that is there."""
    if not row.pointing:
        return [(Fact(INDEX_NAME, " ".join(row.text.split())), None)]
    files = {key(file): file for file in (*draft.now, *draft.changes)}
    found: list[tuple[Fact, str | None]] = []
    for one in pointers_of(row):
        file = files.get(key(one.file)) or files.get(key(f"{one.file}.md"))
        there = file if file and draft.after(file) is not None else None
        if one.hook:
            found.append((Fact(INDEX_NAME, " ".join(one.hook.split()), one.title), there))
    return found


def _kept(draft: Draft, text: str, fact: Fact, row: Row, into: str | None) -> str:
    data = draft.after(into) if into else None
    if into and data is not None:
        new = with_facts(data, [fact], "the index")
        if len(new) <= HEAD:
            draft.changes[into] = new
            draft.kept.append(Kept(fact, into))
            return text
    line = row.text if not row.pointing else f"- {fact.under}: {fact.text}\n"
    draft.kept.append(Kept(fact, INDEX_NAME))
    return f"{text.rstrip()}\n{line.rstrip()}\n".lstrip("\n")


def index_after(desk: Desk, draft: Draft, text: str) -> bytes | None:
    """The index to write, or None when it stays; `Refused` when it cannot be made to fit."""
    now = _text(draft.now.get(INDEX_NAME, b""))
    new = _reconciled(desk, draft, _retold(draft, text))
    if over_limit(new):
        new = _reconciled(desk, draft, _retold(draft, now))
        if (why := over_limit(new)) and len(new) > len(now):
            raise Refused(f"The dream was not saved: {why}")
    data = new.encode("utf-8", "surrogateescape")
    return None if data == draft.now.get(INDEX_NAME, b"") else data


def _reconciled(desk: Desk, draft: Draft, text: str) -> str:
    """Pointers for what will be there, as many of the missing ones as fit, the dream's own first."""
    files = {file for file in desk.ledger.rows if file != INDEX_NAME}
    files = {file for file in {*files, *draft.changes} if draft.changes.get(file, b"") is not None}
    listed = sorted(file for file in files if _needs_line(file))
    also = sorted(files.difference(listed))
    names = [(file, _name(desk, draft, file)) for file in listed]
    absent = set(missing(text, listed, names))
    bare: list[Pointed] = [
        Topic(file, b"", name, "", None, "") for file, name in names if file not in absent
    ]
    new = reconciled(text, bare, also)
    order = sorted(
        absent, key=lambda file: (file not in draft.changes, -_modified(desk, file), file)
    )
    chosen = order[: max(0, LINES - len(new.splitlines()))]
    while chosen and not over_limit(new):
        more = [
            topic for file in sorted(chosen) if (topic := _topic(desk, draft, file)) is not None
        ]
        if not over_limit(full := reconciled(text, [*bare, *more], also)):
            return full
        chosen = chosen[: len(chosen) * 9 // 10]
    return new


def _needs_line(file: str) -> bool:
    return is_listed(file) and not file.startswith(ARCHIVE)


def _retold(draft: Draft, text: str) -> str:
    """A line that was made from the old description says the new one; a hand-written one stays."""
    lines = text.splitlines(keepends=True)
    told: dict[str, str] = {}
    for file, data in draft.changes.items():
        if data is not None and file in draft.now and file != INDEX_NAME:
            old, new = read_topic(draft.now[file], file), read_topic(data, file)
            told |= {pointer_line(old, each): pointer_line(new, each) for each in _BULLETS}
    return "".join(_line(line, told) for line in lines)


def _line(line: str, told: Mapping[str, str]) -> str:
    bare = line.rstrip("\r\n")
    return told.get(bare, bare) + line[len(bare) :]


def _name(desk: Desk, draft: Draft, file: str) -> str:
    if (data := draft.changes.get(file)) is not None:
        return read_topic(data, file).name
    row = desk.ledger.rows.get(file)
    return (row.name if row else "") or file


def _topic(desk: Desk, draft: Draft, file: str) -> Topic | None:
    if (data := draft.after(file)) is not None:
        return read_topic(data, file)
    try:
        return read_topic(desk.at.read(file, HEAD)[0], file)
    except (StorageFailure, Refused):
        return None


def _modified(desk: Desk, file: str) -> int:
    stamp = desk.stamp(file)
    return stamp.modified if stamp else 0


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
