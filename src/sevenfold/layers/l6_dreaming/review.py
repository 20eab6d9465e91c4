"""Dreams that wait for the user: what they would change now, and taking them over or dropping them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from sevenfold.core.errors import Mistake, StorageFailure
from sevenfold.core.messages import Message
from sevenfold.core.transcript import decode_entry
from sevenfold.layers.shared.facts import TYPED
from sevenfold.memory.dreams.commit import commit_dream, preview_dream
from sevenfold.memory.dreams.losses import LossReason
from sevenfold.memory.dreams.plan import DreamOutcome
from sevenfold.memory.dreams.stage import DreamStage, discard_stage, list_waiting_stages, open_stage
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.store import MemoryStore
from sevenfold.storage.files import read_if_there, write_atomic

if TYPE_CHECKING:
    from sevenfold.memory.guard.user_words import SpokenWords

ACCOUNT: Final = "account.json"
ENDING: Final = ".jsonl"
_LARGEST: Final = 16 << 20


class _ReviewAccount(msgspec.Struct, frozen=True):
    author: Author
    explained: dict[str, LossReason] = {}
    transcripts: str = ""


def keep_for_review(
    staged: DreamStage, author: Author, explained: Mapping[str, LossReason], transcripts: Path
) -> None:
    """Keep the copy and what the dream said about it, also when this process is gone."""
    account = _ReviewAccount(author, dict(explained), str(transcripts))
    write_atomic(staged.place / ACCOUNT, msgspec.json.encode(account), nofollow=True)
    staged.wait()


def find_newest_review(state: Path) -> str | None:
    """The dream that waits; of several the newest."""
    return next(reversed(list_waiting_stages(state)), None)


def preview_review(store: MemoryStore, id: str) -> DreamOutcome:
    """The changes that the dream would make in the folder as it is now."""
    return _take_over(preview_dream, store, id)


def accept_review(store: MemoryStore, id: str) -> DreamOutcome:
    """Take it over; older ones that wait are dropped, for they know less."""
    done = _take_over(commit_dream, store, id)
    for other in list_waiting_stages(store.local):
        reject_review(store, other)
    return done


def _take_over(work: Callable[..., DreamOutcome], store: MemoryStore, id: str) -> DreamOutcome:
    """Call `work` with the dream, its account, and what past sessions found it on."""
    account = _account(staged := open_stage(store.local, id))
    past = Path(account.transcripts)
    said = partial(read_spoken_words, past)
    return work(store, staged, account.author, account.explained, list_session_names(past), said)


def reject_review(store: MemoryStore, id: str) -> None:
    """Nothing of it is taken over."""
    discard_stage(open_stage(store.local, id))


def _account(staged: DreamStage) -> _ReviewAccount:
    with contextlib.suppress(StorageFailure, msgspec.DecodeError, UnicodeDecodeError):
        data = read_if_there(staged.place / ACCOUNT, _LARGEST, nofollow=True)
        if data is not None:
            return msgspec.json.decode(data, type=_ReviewAccount)
    raise Mistake(f"{staged.place} is damaged: reject this dream, and dream again")


def list_session_names(transcripts: Path) -> frozenset[str]:
    """The sessions in a folder; names alone are read."""
    try:
        return frozenset(path.stem for path in transcripts.iterdir() if path.suffix == ENDING)
    except OSError:
        return frozenset()


NEWEST: Final = 30  # Sessions in which a dream's rule is looked for
_LONGEST: Final = 32 << 20  # Bytes of a transcript that are read


def read_spoken_words(transcripts: Path) -> SpokenWords:
    """What the user said himself in the newest sessions of a folder; what cannot be read was not said."""
    from sevenfold.memory.guard.user_words import SpokenWords

    said: list[str] = []
    with contextlib.suppress(OSError):
        files = [path for path in transcripts.iterdir() if path.suffix == ENDING]
        for path in sorted(files, key=lambda one: one.stat().st_mtime)[-NEWEST:]:
            said += _read_typed_texts(path)
    return SpokenWords(said)


def _read_typed_texts(path: Path) -> Iterator[str]:
    try:
        lines = (read_if_there(path, _LONGEST) or b"").split(b"\n")
    except StorageFailure:
        return
    for number, line in enumerate(lines):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            entry = decode_entry(line, number)
            message = entry.what
            if isinstance(message, Message) and message.role == "user" and entry.by in TYPED:
                yield "" if message.results else message.text
