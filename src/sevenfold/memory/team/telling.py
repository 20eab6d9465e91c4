"""What a sync did, in words for people."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from sevenfold.memory.folder.naming import TEAM
from sevenfold.memory.team.values import Refusal, Status, Synced

_NAMED: Final = 5


def told(synced: Synced) -> str:
    """One line about a sync."""
    done = {
        "took": synced.pulled,
        "removed": synced.removed_here,
        "sent": synced.pushed,
        "sent the removal of": synced.removed_there,
    }
    parts = [f"{what} {named(files)}" for what, files in done.items() if files]
    if synced.offline is not None:
        first = f"{', '.join(parts)}; " if parts else ""
        return (
            f"{first}not synchronised: {synced.offline}. What changed here goes with the next sync."
        )
    count = synced.left_out
    if not count:
        return ", ".join(parts) if parts else "both sides are the same"
    what = "1 file was left out" if count == 1 else f"{count:,} files were left out"
    which = "it" if count == 1 else "them"
    done_now = ", ".join(parts) if parts else "nothing more to take or send"
    return f"{done_now}; {what} ('sevenfold team status' names {which})"


def remarks(synced: Synced) -> list[str]:
    """What else there is to know about a sync, a sentence each: nothing that the last one said."""
    lines = [synced.note, conflicted(synced), *refusals(synced.fresh, 0)]
    return [line for line in lines if line]


def named(files: Sequence[str]) -> str:
    """Some files, the first ones by name."""
    more = len(files) - _NAMED
    return ", ".join(files[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def conflicted(synced: Synced) -> str:
    """What to do about the copies that a sync made; empty when it made none."""
    if not synced.conflicts:
        return ""
    copies = [f"{TEAM}{file}" for file in synced.conflicts]
    return (
        "you and the team changed the same lines: theirs keeps the name, yours is in "
        f"{named(copies)}; put them together and remove the copy: "
        f"sevenfold memory rm {shlex.quote(copies[0])}"
    )


def refusals(refused: Sequence[Refusal], more: int) -> list[str]:
    """One line for each file that did not go the way of the others."""
    lines = [
        f"{'not sent' if one.side == 'here' else 'not taken'}: {one.file}: {one.why}"
        for one in refused
    ]
    return [*lines, f"and {more:,} more that were not taken or not sent"] if more else lines


def standing(status: Status) -> list[str]:
    """How a team memory stands, line by line."""
    lines = [f"remote: {status.remote}, branch {status.branch}"]
    lines.append(f"not sent yet: {named(status.ahead) if status.ahead else 'nothing'}")
    if status.offline is not None:
        lines.append(f"offline: {status.offline}")
    else:
        lines.append(f"not taken yet: {named(status.behind) if status.behind else 'nothing'}")
    if status.conflicts:
        copies = [f"{TEAM}{file}" for file in status.conflicts]
        lines.append(
            f"copies to be put together: {named(copies)}; 'sevenfold memory rm FILE' removes one"
        )
    return lines + refusals(status.refused, status.more_refused)
