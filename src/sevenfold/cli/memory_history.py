"""`sevenfold memory history`, `diff` and `undo`: who changed what, and taking it back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sevenfold.cli.memory_showing import opened, warn
from sevenfold.cli.options import Shared
from sevenfold.cli.output import result, say
from sevenfold.cli.wording import moment, one_line
from sevenfold.errors import StorageFailure
from sevenfold.memory.folder.desk import Saved
from sevenfold.memory.refusing import NoSuchMemory
from sevenfold.memory.revisions import Revision
from sevenfold.remembering import Memory

_REVISION: Final = re.compile(r"[0-9a-f]{4,40}|(?:HEAD|last|@)(?:~\d*)?", re.IGNORECASE)
_SAME: Final = "nothing has changed"


def show_history(shared: Shared, name: str | None, limit: int, agent: str | None = None) -> int:
    with opened(shared, agent) as memory:
        _take_in(memory)
        revisions = memory.history(name, limit)
    if not revisions:
        say(shared, f"the history of {name or memory.folder} is empty")
    result(shared, lines(revisions), {"name": name, "revisions": revisions})
    return 0


def lines(revisions: Sequence[Revision]) -> str:
    """One line for each: when, who, what."""
    kinds = max((len(one.author.kind) for one in revisions), default=0)
    return "\n".join(
        f"{one.id}  {moment(one.at)}  {one.author.kind:<{kinds}}  {one_line(_what(one), 200)}"
        for one in revisions
    )


def _what(revision: Revision) -> str:
    author = revision.author
    more = [
        text for text in (author.reason, author.session and f"session {author.session}") if text
    ]
    return f"{revision.summary} ({'; '.join(more)})" if more else revision.summary


def show_diff(
    shared: Shared, name: str | None, revision: str | None, agent: str | None = None
) -> int:
    with opened(shared, agent) as memory:
        _take_in(memory)
        name, revision = _meant(memory, name, revision)
        text = memory.diff(name, revision)
    if not text:
        since = f" since {revision}" if revision else ""
        say(shared, f"{_SAME}{since}: {name or memory.folder}")
    result(shared, text.rstrip("\n"), {"name": name, "revision": revision, "diff": text})
    return 0


def _meant(memory: Memory, name: str | None, revision: str | None) -> tuple[str | None, str | None]:
    """`diff a1b2c3` is about a revision, unless there is a memory of that name."""
    if name is None or revision is not None or not _REVISION.fullmatch(name):
        return name, revision
    try:
        memory.get(name)
    except NoSuchMemory:
        return None, name
    return name, None


def undo(shared: Shared, name: str | None, to: str | None, agent: str | None = None) -> int:
    with opened(shared, agent) as memory:
        saved = memory.undo(name, to)
    for one in saved:
        say(shared, told(one))
    if not saved:
        say(shared, f"the index of {memory.folder} is as it was before; no memory has changed")
    revision = saved[0].revision if saved else ""
    result(shared, "", {"name": name, "to": to, "revision": revision, "memories": saved})
    return 0


def told(saved: Saved) -> str:
    """What undoing has done to one memory."""
    done = {"created": "brought back", "removed": "removed again"}.get(saved.action, "as before")
    return f"{saved.name}: {done} ({saved.path})"


def _take_in(memory: Memory) -> None:
    """What somebody wrote by hand since is part of the history, too."""
    try:
        memory.take_in()
    except StorageFailure as error:
        warn(f"what changed since the last revision is not listed: {error}")
