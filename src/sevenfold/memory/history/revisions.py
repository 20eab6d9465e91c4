"""Revisions of the memory folder: their author, time, reason and files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, get_args

import msgspec

from sevenfold.core.errors import Refused

Kind = Literal["user", "agent", "extraction", "dream", "team", "other"]
Action = Literal["created", "changed", "removed"]

SHORT: Final = 12  # Digits of an id that are shown
UNDID: Final = "undid"
REDID: Final = "redid"
"""The summary of a revision that takes another back begins with one of these."""
_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


class Author(msgspec.Struct, frozen=True):
    """The author of a change, with the session and the reason."""

    kind: Kind
    session: str = ""
    reason: str = ""


FOUND: Final = Author("other")  # The author of changes that other programs made in the folder


class RevisionChange(msgspec.Struct, frozen=True):
    """The change of one file in a revision."""

    file: str
    action: Action


class TakenRevisions(msgspec.Struct, frozen=True):
    """The revisions that an undo or a redo takes back, by their numbers.

    A redo takes back an undo. Several at once are an undo to an earlier revision, of `file` or of all.
    """

    first: int
    last: int
    file: str = ""
    redo: bool = False


class Revision(msgspec.Struct, frozen=True):
    """One step in the history of the folder."""

    id: str
    at: float
    author: Author
    summary: str
    files: tuple[RevisionChange, ...]
    number: int = 0  # Grows from the oldest on, which has 1; a purge leaves gaps
    takes_back: TakenRevisions | None = None
    found: bool = False  # The first revision, with files that were there before: it cannot be undone


def classify_change(was: bytes | None, now: bytes | None) -> Action:
    """The kind of change between two contents of a file."""
    if was is None:
        return "created"
    return "removed" if now is None else "changed"


def to_safe_line(text: str) -> str:
    """The text on one line, so that it cannot be mistaken for a trailer."""
    return " ".join(text.split()).encode("utf-8", "replace").decode("utf-8")


def describe_changes(files: Sequence[RevisionChange]) -> str:
    """A summary of these changes, for a revision without one."""
    if not files:
        return "changed nothing"
    first, rest = files[0], len(files) - 1
    more = f" and {rest} more {'file' if rest == 1 else 'files'}" if rest else ""
    return f"{first.action} {first.file.removesuffix('.md')}{more}"


def to_kind(text: str) -> Kind:
    """The kind of author with this name; `other` for names that are not ours."""
    return next((kind for kind in _KINDS if kind == text), "other")


def encode_path(file: str) -> bytes:
    """The path of a file in the history; `Refused` for names that git does not accept."""
    parts = file.split("/")
    if "\0" in file or any(p in ("", ".", "..") or p.lower() == ".git" for p in parts):
        raise Refused(f"{file!r} cannot be kept in the history: give the file another name")
    return file.encode("utf-8", "surrogateescape")


def decode_path(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
