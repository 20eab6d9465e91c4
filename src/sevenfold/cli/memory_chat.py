"""`/memory` in the chat: what is remembered, one of the memories, and taking the last change back."""

from __future__ import annotations

import sys
from typing import Final

from sevenfold.cli.memory_history import told
from sevenfold.cli.memory_showing import drawn, listed, shown, table
from sevenfold.cli.outcomes import Next, Said
from sevenfold.errors import Mistake
from sevenfold.memory.revisions import Author
from sevenfold.memory.store import MemoryStore
from sevenfold.session import Session

MOST_LISTED: Final = 30
USAGE: Final = (
    "/memory lists what is remembered; /memory show NAME, /memory undo [NAME], /memory path"
)


def memory(session: Session, rest: str) -> Next:
    """`/memory`, `/memory show NAME`, `/memory undo [NAME]`, `/memory path`."""
    word, _, more = rest.partition(" ")
    more = more.strip()
    if word == "path" and not more:
        return Said(f"  {session.at.memory.folder}{_off(session)}")
    store = session.knowledge.store
    if store is None:
        return Said(f"  there is no memory in this session{_off(session)}")
    if word in ("", "list") and not more:
        return Said(_listed(store, session.clock.now()))
    if word == "show" and more:
        now = session.clock.now()
        one = shown(store, more, now)
        return Said("\n\n".join(filter(None, [drawn(one, now), one.caveat])))
    if word == "undo":
        return _undone(store, session.id, more or None)
    raise Mistake(USAGE)


def _off(session: Session) -> str:
    off = session.at.memory.off
    return f" (memory is off: {off})" if off else ""


def _listed(store: MemoryStore, now: float) -> str:
    memories = listed(store, now)
    if not memories:
        return f"  nothing is remembered yet in {store.folder}; say 'remember that …'"
    lines = table(memories[:MOST_LISTED], now, terminal=sys.stdout.isatty()).split("\n")
    if len(memories) > MOST_LISTED:
        more = len(memories) - MOST_LISTED
        lines.append(f"… and {more:,} more: sevenfold memory list")
    return "\n".join([*(f"  {line}" for line in lines), f"  {USAGE.partition('; ')[2]}"])


def _undone(store: MemoryStore, session: str, name: str | None) -> Next:
    saved = store.undo(name, author=Author("user", session))
    if not saved:
        return Said("  the index is as it was before; no memory has changed")
    return Said("\n".join(f"  {told(one)}" for one in saved))
