"""Carries over what earlier versions kept beside a memory folder: a git repository, and records as files.

The repository `history` is read with git's own `fast-export`. A commit becomes a revision with the same id;
its last paragraph has `Key: value` lines. The old folders are removed once the new file is on the disk.
"""

from __future__ import annotations

import ast
import contextlib
import json
import math
import shutil
import sqlite3
import subprocess
import zlib
from pathlib import Path
from typing import IO, Final

from msgspec.structs import replace

from sevenfold.core.errors import StorageFailure
from sevenfold.memory.folder.files import REPOSITORY, ROOMS, has_earlier_folders, mark_room
from sevenfold.memory.history.database import EarlierHistory
from sevenfold.memory.history.history import write_change, write_revision
from sevenfold.memory.history.revisions import (
    Author,
    Revision,
    RevisionChange,
    TakenRevisions,
    classify_change,
    decode_path,
    to_kind,
    to_safe_line,
)
from sevenfold.storage.git import GitProgram

_BRANCH: Final = "refs/heads/main"


class EarlierFolders:
    """The folders that earlier versions kept in the state folder."""

    def __init__(self, state: Path) -> None:
        self._state, self._repository = state, state / REPOSITORY

    def exists(self) -> bool:
        return has_earlier_folders(self._state)

    def carry_over(self, db: sqlite3.Connection) -> None:
        for room in ROOMS:
            for path in self._list_records(room):
                mark_room(self._state, room)
                db.execute("insert into record values (?, ?, ?)", (room, path.name, path.read_bytes()))
        git = shutil.which("git")
        if git is None or self._newest() is None:
            return
        db.execute("savepoint past")
        try:
            _read_repository(db, GitProgram(git, {}), self._repository)
        except (StorageFailure, OSError, ValueError, KeyError, zlib.error, sqlite3.IntegrityError):
            db.execute("rollback to past")
        db.execute("release past")

    def remove(self, db: sqlite3.Connection | None) -> tuple[str, ...]:
        newest = self._newest()
        query = "select 1 from revision where id = ?"
        known = db is None or newest is None or db.execute(query, (newest,)).fetchone() is not None
        gone = [name for name in (REPOSITORY, *ROOMS) if (self._state / name).is_dir()]
        gone = [name for name in gone if known or name != REPOSITORY]
        for name in gone:
            shutil.rmtree(self._state / name, ignore_errors=True)
        return tuple(gone)

    def _list_records(self, room: str) -> list[Path]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = (self._state / room).iterdir()
            return [p for p in found if p.is_file() and not p.is_symlink() and p.suffix != ".lock"]
        return []

    def _newest(self) -> str | None:
        """The id of the newest commit."""
        with contextlib.suppress(OSError):
            return (self._repository / _BRANCH).read_text(encoding="utf-8").strip()
        with contextlib.suppress(OSError):  # `git gc` moves names into one file
            lines = (self._repository / "packed-refs").read_text(encoding="utf-8").splitlines()
            return next((line[:40] for line in lines if line[40:] == f" {_BRANCH}"), None)
        return None


# --- the stream of fast-export ------------------------------------------------------------------------


def _read_repository(db: sqlite3.Connection, git: GitProgram, repository: Path) -> None:
    words = ["--git-dir", str(repository), "fast-export", "--show-original-ids", "--first-parent", _BRANCH]
    with subprocess.Popen(
        git.command(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=git.environment, cwd=repository,
    ) as process:  # fmt: skip
        assert process.stdout
        _CarriedHistory(db).read(process.stdout)
        if process.wait() != 0:
            raise StorageFailure(f"git could not read {repository}")


class _CarriedHistory:
    """Turns the stream into rows, commit by commit."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._texts: dict[bytes, bytes] = {}  # By their marks, compressed
        self._there: dict[bytes, bytes] = {}  # The mark of each file's content
        self._numbers: dict[int, int] = {}

    def read(self, stream: IO[bytes]) -> None:
        fields: dict[bytes, bytes] = {}
        changes: dict[bytes, bytes | None] = {}
        for line in stream:
            key, _, value = line.rstrip(b"\n").partition(b" ")
            if key in (b"blob", b"commit", b"reset"):
                self._write(fields, changes)
                fields, changes = {b"kind": key}, {}
            elif key == b"data":
                fields[key] = stream.read(int(value))
                if fields[b"kind"] == b"blob":
                    self._texts[fields[b"mark"]] = zlib.compress(fields[key], 1)
            elif key == b"M":
                _, mark, path = value.split(b" ", 2)
                changes[_unquote(path)] = mark
            elif key == b"D":
                changes[_unquote(value)] = None
            else:
                fields[key] = value
        self._write(fields, changes)

    def _write(self, fields: dict[bytes, bytes], changes: dict[bytes, bytes | None]) -> None:
        if fields.get(b"kind") != b"commit":
            return
        number = len(self._numbers) + 1
        files: list[RevisionChange] = []
        for path, mark in sorted(changes.items()):
            if mark is not None and mark not in self._texts:  # a link to another repository
                continue
            was = self._there.pop(path, None)
            if mark is not None:
                self._there[path] = mark
            data = None if mark is None else zlib.decompress(self._texts[mark])
            files.append(RevisionChange(decode_path(path), classify_change(was, mark)))
            write_change(self._db, path, number, files[-1].action, data)
        revision = _read_commit(fields)
        self._numbers[revision.number or number] = number
        taken = revision.takes_back
        if taken is not None:
            first, last = self._numbers.get(taken.first), self._numbers.get(taken.last)
            taken = replace(taken, first=first, last=last) if first and last else None
        write_revision(self._db, replace(revision, number=number, takes_back=taken, files=tuple(files)))


def _unquote(path: bytes) -> bytes:
    """A path as it is; git writes an unusual one as C writes a text, and so does Python."""
    return bytes(ast.literal_eval(f"b{path.decode('ascii')}")) if path.startswith(b'"') else path


def _read_commit(fields: dict[bytes, bytes]) -> Revision:
    """The revision of a commit, also of one made with git by hand; `number` 0: it names none."""
    message = fields[b"data"].decode("utf-8", "replace")
    said = message.rstrip("\n").split("\n\n")
    lines = [line.partition(": ") for line in said[-1].split("\n")] if len(said) > 1 else []
    known = {key: value for key, colon, value in lines if colon}
    seconds = fields[b"author"].rpartition(b"> ")[2].partition(b" ")[0].decode("ascii", "replace")
    return Revision(
        fields[b"original-oid"].decode("ascii"),
        _number(known.get("At", "")) or _number(seconds),
        Author(to_kind(known.get("Author-Kind", "")), known.get("Session", ""), known.get("Reason", "")),
        to_safe_line(message.partition("\n")[0]),
        (),
        int(_number(known.get("Revision", ""))),
        _taken(known.get("Undoes", ""), redo=False) or _taken(known.get("Redoes", ""), redo=True),
        "Begins" in known,
    )


def _taken(text: str, *, redo: bool) -> TakenRevisions | None:
    numbers, _, file = text.partition(" ")
    first, _, last = numbers.partition("-")
    if not (first.isdecimal() and last.isdecimal()):
        return None
    return TakenRevisions(int(first), int(last), str(json.loads(file)) if file[:1] == '"' else file, redo)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if math.isfinite(number) else 0.0


_earlier: type[EarlierHistory] = EarlierFolders
