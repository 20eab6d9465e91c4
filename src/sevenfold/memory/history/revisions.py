"""Revisions of the memory folder: their author, time, reason and files, as git commits.

The first line of a commit's message is a sentence, so that people can read the history with `git log`. The
last paragraph has `Key: value` lines for programs. It names the files too: following one file needs no
reading of trees.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Final, Literal, get_args

import msgspec

from sevenfold.core.errors import StorageFailure

Kind = Literal["user", "agent", "extraction", "dream", "team", "other"]
Action = Literal["created", "changed", "removed"]

SHORT: Final = 12  # Digits of a commit's id that are shown
NAMED: Final = 200  # A revision of more files than this does not name them in its message
UNDID: Final = "undid"
REDID: Final = "redid"
"""The summary of a revision that takes another back begins with one of these."""
_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_ACTIONS: Final[dict[str, Action]] = {"Created": "created", "Changed": "changed", "Removed": "removed"}


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
    number: int = 0  # Counted from the oldest, which is 1
    takes_back: TakenRevisions | None = None
    found: bool = False  # The first revision, with files that were there before: it cannot be undone


class StoredCommit(msgspec.Struct, frozen=True):
    """A revision as it is stored: ids have 20 bytes; `files` is None if the message does not name them."""

    tree: bytes
    parent: bytes | None
    at: float
    author: Author
    summary: str
    number: int = 0
    files: tuple[RevisionChange, ...] | None = None
    found: bool = False  # The first revision: it holds what was in the folder when the history began
    takes_back: TakenRevisions | None = None

    def revision(self, id: bytes, files: tuple[RevisionChange, ...]) -> Revision:
        return Revision(
            id.hex()[:SHORT],
            self.at,
            self.author,
            self.summary,
            files,
            self.number,
            self.takes_back,
            self.found,
        )


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


def encode_commit(commit: StoredCommit) -> bytes:
    """The commit as git stores it."""
    seconds = max(0, int(commit.at)) if math.isfinite(commit.at) else 0
    kind = commit.author.kind
    parent = f"parent {commit.parent.hex()}\n" if commit.parent else ""
    head = (
        f"tree {commit.tree.hex()}\n{parent}"
        f"author {kind} <{kind}@sevenfold.invalid> {seconds} +0000\n"
        f"committer Sevenfold <history@sevenfold.invalid> {seconds} +0000\n"
    )
    summary = to_safe_line(commit.summary) or describe_changes(commit.files or ())
    text = f"{head}\n{summary}\n\n" + "".join(f"{k}: {v}\n" for k, v in _trailers(commit))
    return text.encode("utf-8", "replace")


def _trailers(commit: StoredCommit) -> list[tuple[str, str]]:
    author = commit.author
    lines = [("Author-Kind", str(author.kind))]
    lines += [("Session", to_safe_line(author.session))] if author.session else []
    lines += [("Reason", to_safe_line(author.reason))] if author.reason else []
    lines += [("Revision", str(commit.number)), ("At", repr(float(commit.at)))]
    lines += [("Begins", "with what was found")] if commit.found else []
    if (taken := commit.takes_back) is not None:
        range = f"{taken.first}-{taken.last} {_written(taken.file) if taken.file else ''}".strip()
        lines.append(("Redoes" if taken.redo else "Undoes", range))
    if commit.files is None or len(commit.files) > NAMED:
        lines.append(("Files", "too many to name"))
    else:
        lines += [(c.action.capitalize(), _written(c.file)) for c in commit.files]
    return lines


def decode_commit(data: bytes) -> StoredCommit:
    """Read a commit, also one made with git by hand; `StorageFailure` if it is damaged."""
    text = data.decode("utf-8", "replace")
    head, _, message = text.partition("\n\n")
    fields: dict[str, str] = {}
    for line in head.split("\n"):
        key, _, value = line.partition(" ")
        fields.setdefault(key, value)  # of several parents the first counts
    said = message.rstrip("\n").split("\n\n")
    lines = [line.partition(": ") for line in said[-1].split("\n")] if len(said) > 1 else []
    trailers = [(key, value) for key, colon, value in lines if colon]
    known = dict(trailers)
    kind: Kind = next((kind for kind in _KINDS if kind == known.get("Author-Kind")), "other")
    try:
        parent = bytes.fromhex(fields["parent"]) if "parent" in fields else None
        seconds = fields["author"].rpartition("> ")[2].partition(" ")[0]
        return StoredCommit(
            bytes.fromhex(fields["tree"]),
            parent,
            _number(known.get("At", "")) or _number(seconds),
            Author(kind, known.get("Session", ""), known.get("Reason", "")),
            message.partition("\n")[0],
            int(_number(known.get("Revision", ""))),
            _named(trailers),
            "Begins" in known,
            _taken(known.get("Undoes", ""), redo=False) or _taken(known.get("Redoes", ""), redo=True),
        )
    except (KeyError, ValueError, OverflowError) as error:
        raise StorageFailure("a commit of the history cannot be understood") from error


def _taken(text: str, *, redo: bool) -> TakenRevisions | None:
    numbers, _, file = text.partition(" ")
    first, _, last = numbers.partition("-")
    if not (first.isdecimal() and last.isdecimal()):
        return None
    return TakenRevisions(int(first), int(last), _read(file), redo)


def _named(trailers: list[tuple[str, str]]) -> tuple[RevisionChange, ...] | None:
    if "Author-Kind" not in dict(trailers) or "Files" in dict(trailers):
        return None
    files = [(_read(v), k) for k, v in trailers if k in _ACTIONS]
    return tuple(RevisionChange(file, _ACTIONS[key]) for file, key in files)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if math.isfinite(number) else 0.0


def _read(file: str) -> str:
    return str(json.loads(file)) if file.startswith('"') else file


def _written(file: str) -> str:
    plain = file.isprintable() and not file.startswith('"') and file == file.strip()
    return file if plain else json.dumps(file)
