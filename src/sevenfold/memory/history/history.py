"""The history of a memory folder: every change is a revision that can be listed, compared and undone.

It is rows in a SQLite file beside the folder (`database.py`), made on the first change. A file's content is
kept compressed against the content before it. Readers need no lock and see one state; the writers
(`record`, `purge`, `mend`) need the folder's write lock.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from sevenfold.core.errors import Mistake, StorageFailure
from sevenfold.memory.history.database import DamagedHistory, HistoryFile, remove_set_aside
from sevenfold.memory.history.diff import make_unified_diff
from sevenfold.memory.history.purge import PurgeReport, clean_index, find_indexes_above, make_name_pattern
from sevenfold.memory.history.revisions import (
    SHORT,
    Action,
    Author,
    Revision,
    RevisionChange,
    TakenRevisions,
    classify_change,
    decode_path,
    describe_changes,
    encode_path,
    to_kind,
    to_safe_line,
)

Files = Mapping[str, bytes]
Rows = sqlite3.Connection
LAST: Final = "last"
_DEPTH: Final = 16  # Longest chain of contents that are kept as a difference to the one before
_WINDOW: Final = 32_000  # Bytes that zlib looks back
_BACK: Final = re.compile(r"(?:HEAD|last|@)(?:~(\d*))?", re.IGNORECASE)
_DIGITS: Final = re.compile(r"[0-9a-f]{4,40}", re.IGNORECASE)
_REVISION: Final = (
    "select number, id, at, kind, session, reason, summary, found, first, last, file, redo from revision"
)
_FILES: Final = "select file, max(number), action from change where number <= ? group by file"


class MemoryHistory:
    """The revisions of one folder. `tell` gets a sentence for the user when a damaged one was repaired."""

    def __init__(
        self, file: HistoryFile | Path, tell: Callable[[str], None] = lambda sentence: None
    ) -> None:
        self._file = HistoryFile(file) if isinstance(file, Path) else file
        self.path, self.tell = self._file.path, tell

    # --- writing --------------------------------------------------------------------------------------

    def record(
        self,
        files: Files | Callable[[], Files],
        author: Author,
        summary: str,
        at: float,
        changed: Mapping[str, bytes | None] | None = None,
        takes_back: TakenRevisions | None = None,
    ) -> Revision | None:
        """Add a revision with the folder as it is now; None if nothing changed.

        With `changed` (None for a removed file) only these files are compared, and `files`, the whole
        folder, is called only if there is no history yet. `takes_back`: it is an undo or a redo.
        """
        for name in changed or ():
            encode_path(name)

        def record() -> Revision | None:
            self._finish_purge()
            with self._file.write() as db:
                newest = _find_newest(db)
                now, found = changed or {}, False
                if newest == 0 or changed is None:
                    told = {name: data for name, data in now.items() if data is not None}
                    whole = {**(files() if callable(files) else files), **told}
                    found = newest == 0 and told.keys() != whole.keys()
                    now = {**dict.fromkeys(map(decode_path, _list_files(db, newest))), **whole}
                changes = _write_changes(db, newest + 1, now)
                if not changes:
                    return None
                said = to_safe_line(summary) or to_safe_line(describe_changes(changes))
                safe = Author(author.kind, to_safe_line(author.session), to_safe_line(author.reason))
                when = at if math.isfinite(at) else 0.0
                id = secrets.token_hex(20)
                revision = Revision(id, when, safe, said, changes, newest + 1, takes_back, found)
                write_revision(db, revision)
            return _shorten(revision)

        try:
            return record()
        except DamagedHistory:
            self.tell(self._file.set_aside(at))
            return record()

    def purge(self, *names: str, at: float = 0.0) -> PurgeReport:
        """Remove files, by all names they had, from every revision, and every trace from the disk."""
        if not names:
            raise Mistake("no file to purge was named; name the file")
        paths = [encode_path(name) for name in names]
        ids: dict[str, str] = {}
        lost, removed = False, tuple[str, ...]()
        try:
            if self.path.exists():
                with self._file.write(lasting=True) as db:
                    ids = _purge(db, paths)
                    db.execute("insert or ignore into unfinished values ('erase')")
                removed = self._remove_copies()  # first: the file may be held by another process
                self._file.erase_removed()
        except DamagedHistory:
            self._file.set_aside(at)  # it cannot be cleaned, so it is removed
            lost = True
        return PurgeReport(names, ids, (*removed, *self._remove_copies()), lost)

    def _remove_copies(self) -> tuple[str, ...]:
        """Remove the damaged histories and the earlier one: they cannot be cleaned. Returns their names."""
        earlier = self._file.earlier.remove(None) if self._file.earlier else ()
        return *remove_set_aside(self.path), *earlier

    def mend(self, at: float, *, deep: bool = False) -> str:
        """Repair the history after a crash; returns a sentence for the user, empty if all is well.

        Ends a purge that was interrupted. With `deep` every revision is read, otherwise only the last
        one; a damaged history is set aside.
        """
        try:
            try:
                damaged = deep and bool(self.check())
                self._read_newest()
                self._finish_purge()
            except DamagedHistory:
                damaged = True
            return self._file.set_aside(at) if damaged else ""
        except StorageFailure as error:
            return f"{error}; until then changes to memories have no history"

    def _read_newest(self) -> None:
        """Raises `DamagedHistory` unless the last revision can be read, so that another can follow it."""
        with self._file.read() as db:
            if db is not None:
                read_folder(db, _find_newest(db))

    def _finish_purge(self) -> None:
        with self._file.read() as db:
            unfinished = db is not None and db.execute("select 1 from unfinished").fetchone()
        if unfinished:
            self._remove_copies()
            self._file.erase_removed()

    # --- reading --------------------------------------------------------------------------------------

    def log(self, file: str | None = None, limit: int = 50) -> list[Revision]:
        """The newest revisions first; with `file` those that touched it (a rename: removed, created)."""
        with self._file.read() as db:
            if db is None:
                return []
            chosen = "" if file is None else " where number in (select number from change where file = ?)"
            given = () if file is None else (encode_path(file),)
            return [
                _shorten(one)
                for one in read_revisions(db, f"{chosen} order by number desc limit ?", *given, limit)
            ]

    def at(self, revision: str) -> dict[str, bytes]:
        """The whole folder as it was right after a revision."""
        with self._file.read() as db:
            return read_folder(db, _resolve(db, revision).number) if db else _refuse(revision, 0)

    def file_at(self, revision: str, file: str) -> bytes | None:
        """One file as it was right after a revision; None when it was not there."""
        with self._file.read() as db:
            number = _resolve(db, revision).number
            return read_content(db, encode_path(file), number) if db else None

    def diff(self, older: str | None, newer: str = LAST, file: str | None = None) -> str:
        """The changes between two revisions as a unified diff; `older=None` is before the first."""
        with self._file.read() as db:
            first = 0 if older is None else _resolve(db, older).number
            return _compare(db, first, _resolve(db, newer).number, file) if db else ""

    def changes(self, revision: str = LAST, file: str | None = None) -> str:
        """The changes of one revision as a unified diff."""
        with self._file.read() as db:
            number = _resolve(db, revision).number
            return _compare(db, number - 1, number, file) if db else ""

    def find(self, revision: str) -> Revision:
        """A revision by its name."""
        with self._file.read() as db:
            return _shorten(_resolve(db, revision, bare=False))

    def check(self) -> list[str]:
        """Read the whole history; a sentence for each problem."""
        problems: list[str] = []
        try:
            with self._file.read() as db:
                if db is None:
                    return []
                said = [row[0] for row in db.execute("pragma integrity_check")]
                problems += [f"the history in {self.path} is damaged: {one}" for one in said if one != "ok"]
                for file, number in db.execute("select file, number from change").fetchall():
                    try:
                        read_content(db, file, number)
                    except DamagedHistory as error:
                        problems.append(str(error))
        except StorageFailure as error:
            problems.append(str(error))
        return problems


# --- rows ---------------------------------------------------------------------------------------------


def write_revision(db: Rows, revision: Revision) -> None:
    """Add the row of a revision; its changes are rows of their own."""
    author, taken = revision.author, revision.takes_back
    first, last, file, redo = (
        (taken.first, taken.last, encode_path(taken.file) if taken.file else b"", taken.redo)
        if taken
        else (None, None, None, None)
    )
    db.execute(
        "insert into revision values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            revision.number, revision.id, revision.at, author.kind, author.session,
            author.reason, revision.summary, revision.found, first, last, file, redo,
        ),
    )  # fmt: skip


def read_revisions(db: Rows, chosen: str, *given: object, bare: bool = False) -> Iterator[Revision]:
    """The revisions that the end of a query chooses, with their whole ids; `bare`: without files."""
    for number, id, at, kind, session, reason, summary, found, *taken in db.execute(
        _REVISION + chosen, given
    ).fetchall():
        query = "select file, action from change where number = ? order by file"
        rows = () if bare else db.execute(query, (number,))
        files = tuple(RevisionChange(decode_path(file), action) for file, action in rows)
        first, last, file, redo = taken
        takes_back = None
        if first is not None:
            takes_back = TakenRevisions(first, last, decode_path(file), bool(redo))
        author = Author(to_kind(kind), session, reason)
        yield Revision(id, at, author, summary, files, number, takes_back, bool(found))


def write_change(db: Rows, file: bytes, number: int, action: Action, data: bytes | None) -> None:
    """Add the row of a changed file."""
    depth, packed, digest = 0, None, None
    if data is not None:
        before = db.execute(
            "select number, depth, data is null from change where file = ? and number < ?"
            " order by number desc limit 1",
            (file, number),
        ).fetchone()
        near = before is not None and not before[2] and before[1] < _DEPTH
        base = (read_content(db, file, before[0]) or b"")[-_WINDOW:] if near else b""
        depth = before[1] + 1 if base else 0
        packer = zlib.compressobj(zdict=base) if base else zlib.compressobj()
        packed = packer.compress(data) + packer.flush()
        digest = _digest(data)
    db.execute(
        "insert into change values (?, ?, ?, ?, ?, ?)", (file, number, action, digest, depth, packed)
    )


def keep_numbers(db: Rows, count: int) -> int:
    """Keep so many numbers free for `add_past`; returns the last one before them."""
    newest = _find_newest(db)
    db.execute("delete from sqlite_sequence where name = 'revision'")
    db.execute("insert into sqlite_sequence values ('revision', ?)", (newest + count,))
    return newest


def add_past(db: Rows, file: str, past: Sequence[tuple[Revision, bytes | None]], after: int = 0) -> None:
    """Add what a file was between two of its revisions: `after` a number, up to the text that came next."""
    path = encode_path(file)
    query = "select number, action from change where file = ? and number > ? order by number"
    rows = db.execute(query, (path, after)).fetchall()
    if not past or (rows and rows[0][0] == past[0][0].number):  # it was added before
        return
    later = [(number, action, read_content(db, path, number)) for number, action in rows]
    db.execute("delete from change where file = ? and number > ?", (path, after))
    was = read_content(db, path, after) if after else None
    for revision, data in past:
        write_change(db, path, revision.number, classify_change(was, data), data)
        write_revision(db, revision)
        was = data
    if later and later[0][2] == was:  # the same text, taken as the newest: it has its own revision now
        del later[0]
    for number, action, data in later:  # their contents are kept as differences to the one before
        write_change(db, path, number, action, data)


def read_folder(db: Rows, number: int) -> dict[str, bytes]:
    """All files right after a revision."""
    found: dict[str, bytes] = {}
    for file in _list_files(db, number):
        if (data := read_content(db, file, number)) is not None:
            found[decode_path(file)] = data
    return found


def _write_changes(db: Rows, number: int, now: Mapping[str, bytes | None]) -> tuple[RevisionChange, ...]:
    changes: list[RevisionChange] = []
    for name in sorted(now, key=encode_path):
        file, data = encode_path(name), now[name]
        was = _newest_digest(db, file)
        if was == (None if data is None else _digest(data)):
            continue
        action = classify_change(was, data)
        write_change(db, file, number, action, data)
        changes.append(RevisionChange(name, action))
    return tuple(changes)


def _find_newest(db: Rows) -> int:
    """The highest number that a revision ever had: one that was purged is not given again."""
    row = db.execute("select seq from sqlite_sequence where name = 'revision'").fetchone()
    return int(row[0]) if row else 0


def _newest_digest(db: Rows, file: bytes) -> bytes | None:
    row = db.execute(
        "select digest from change where file = ? order by number desc limit 1", (file,)
    ).fetchone()
    return row[0] if row else None


def _list_files(db: Rows, number: int) -> list[bytes]:
    """The files that were there right after a revision."""
    return [file for file, _, action in db.execute(_FILES, (number,)) if action != "removed"]


def read_content(db: Rows, file: bytes, number: int) -> bytes | None:
    """A file as it was right after a revision; None if it was not there."""
    rows = db.execute(
        "select depth, data, digest, number from change where file = ? and number <= ?"
        f" order by number desc limit {_DEPTH + 1}",
        (file, number),
    ).fetchall()
    if not rows or rows[0][1] is None:
        return None
    base = b""
    try:
        for depth, data, *_ in reversed(rows[: rows[0][0] + 1]):
            opener = zlib.decompressobj(zdict=base[-_WINDOW:]) if depth else zlib.decompressobj()
            base = opener.decompress(data)
        if _digest(base) == rows[0][2]:
            return base
    except (zlib.error, TypeError):
        pass
    name = decode_path(file)
    raise DamagedHistory(
        f"the history is damaged: {name} in revision {rows[0][3]} cannot be read; copy the file back from "
        "a backup, or move it away and a new history begins"
    )


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


# --- finding and comparing ----------------------------------------------------------------------------


def _shorten(revision: Revision) -> Revision:
    from msgspec.structs import replace

    return replace(revision, id=revision.id[:SHORT])


def _refuse(text: str, count: int) -> dict[str, bytes]:
    raise Mistake(f"there is no revision {text!r}: the history has {count}; see the list of revisions")


def _resolve(db: Rows | None, text: str, *, bare: bool = True) -> Revision:
    if back := _BACK.fullmatch(text.strip()):
        wanted = int(back[1] or "1") if back[1] is not None else 0
        chosen = " order by number desc limit 1 offset ?"
        found = list(read_revisions(db, chosen, min(wanted, 1 << 60), bare=bare)) if db else []
        if not found:
            _refuse(text, db.execute("select count(*) from revision").fetchone()[0] if db else 0)
        return found[0]
    digits = text.strip().lower()
    if not _DIGITS.fullmatch(digits):
        raise Mistake(
            f"{text!r} is no revision: give the beginning of an id (four digits or more), "
            "'last', or 'HEAD~2' for two before the last"
        )
    query = " where id >= ? and id < ? limit 4"
    found = list(read_revisions(db, query, digits, digits + "g", bare=bare)) if db else []
    if not found:
        raise Mistake(f"there is no revision {text!r}: see the list of revisions for their ids")
    if len(found) > 1:
        which = ", ".join(one.id[:SHORT] for one in found[:3])
        raise Mistake(f"{text!r} is the beginning of several revisions ({which}): give more digits")
    return found[0]


def _compare(db: Rows, older: int, newer: int, file: str | None) -> str:
    low, high = sorted((older, newer))
    files = db.execute(
        "select distinct file from change where number > ? and number <= ? order by file", (low, high)
    ).fetchall()
    wanted = None if file is None else encode_path(file)
    return "".join(
        make_unified_diff(decode_path(one), read_content(db, one, older), read_content(db, one, newer))
        for (one,) in files
        if wanted in (None, one)
    )


# --- purging ------------------------------------------------------------------------------------------


def _purge(db: Rows, paths: Sequence[bytes]) -> dict[str, str]:
    """Remove the files; returns the revisions of which nothing is left."""
    touched = set[int]()
    for path in paths:
        touched |= {row[0] for row in db.execute("select number from change where file = ?", (path,))}
        db.execute("delete from change where file = ?", (path,))
        db.execute("update revision set first = null, last = null, file = null where file = ?", (path,))
    for index in find_indexes_above(paths):
        _rewrite_index(db, index, paths)
    words = make_name_pattern(paths)
    emptied: dict[str, str] = {}
    for one in list(read_revisions(db, "")):
        if not one.files:
            db.execute("delete from revision where number = ?", (one.number,))
            emptied[one.id[:SHORT]] = ""
        elif one.number in touched or words.search(f"{one.summary} {one.author.reason}"):
            said = describe_changes(one.files)
            db.execute("update revision set summary = ?, reason = '' where number = ?", (said, one.number))
    db.execute(
        "update revision set first = null, last = null, file = null where first is not null and not exists"
        " (select 1 from revision as kept where kept.number between revision.first and revision.last)"
    )
    return emptied


def _rewrite_index(db: Rows, index: bytes, paths: Sequence[bytes]) -> None:
    """Take the lines that point at the files out of every revision of an index."""
    rows = db.execute(
        "select number, action from change where file = ? order by number", (index,)
    ).fetchall()
    contents = [(number, action, read_content(db, index, number)) for number, action in rows]
    if not any(data is not None and clean_index(data, index, paths) != data for *_, data in contents):
        return
    db.execute("delete from change where file = ?", (index,))
    before: bytes | None = None
    for number, _, data in contents:
        clean = None if data is None else clean_index(data, index, paths)
        if clean != before:
            write_change(db, index, number, classify_change(before, clean), clean)
        before = clean
