"""Dreams that wait for the user: what they would change now, and taking them over or dropping them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.errors import Mistake, StorageFailure
from sevenfold.memory.dreams.commit import commit, preview
from sevenfold.memory.dreams.losses import Explained
from sevenfold.memory.dreams.plan import Outcome
from sevenfold.memory.dreams.stage import Staged, discard, opened, waiting
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.store import MemoryStore
from sevenfold.storage.files import read_if_there, write_atomic

ACCOUNT: Final = "account.json"
ENDING: Final = ".jsonl"
_LARGEST: Final = 16 << 20


class _Account(msgspec.Struct, frozen=True):
    author: Author
    explained: dict[str, Explained] = {}
    transcripts: str = ""


def keep_for_review(
    staged: Staged, author: Author, explained: Mapping[str, Explained], transcripts: Path
) -> None:
    """Keep the copy and what the dream said about it, also when this process is gone."""
    account = _Account(author, dict(explained), str(transcripts))
    write_atomic(staged.place / ACCOUNT, msgspec.json.encode(account), nofollow=True)
    staged.wait()


def newest(state: Path) -> str | None:
    """The dream that waits; of several the newest."""
    found = waiting(state)
    return found[-1] if found else None


def shown(store: MemoryStore, id: str) -> Outcome:
    """What the dream would change in the folder as it is now."""
    staged = opened(store.state, id)
    account = _account(staged)
    sessions = session_names(Path(account.transcripts))
    return preview(store, staged, account.author, account.explained, sessions)


def accept(store: MemoryStore, id: str) -> Outcome:
    """Take it over; older ones that wait are dropped, for they know less."""
    staged = opened(store.state, id)
    account = _account(staged)
    sessions = session_names(Path(account.transcripts))
    done = commit(store, staged, account.author, account.explained, sessions)
    for other in waiting(store.state):
        reject(store, other)
    return done


def reject(store: MemoryStore, id: str) -> None:
    """Nothing of it is taken over."""
    discard(opened(store.state, id))


def _account(staged: Staged) -> _Account:
    with contextlib.suppress(StorageFailure, msgspec.DecodeError, UnicodeDecodeError):
        data = read_if_there(staged.place / ACCOUNT, _LARGEST, nofollow=True)
        if data is not None:
            return msgspec.json.decode(data, type=_Account)
    raise Mistake(f"{staged.place} is damaged: reject this dream, and dream again")


def session_names(transcripts: Path) -> frozenset[str]:
    """The sessions in a folder; names alone are read."""
    try:
        return frozenset(path.stem for path in transcripts.iterdir() if path.suffix == ENDING)
    except OSError:
        return frozenset()
