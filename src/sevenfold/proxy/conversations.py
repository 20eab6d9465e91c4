"""The conversations of a proxy's clients, kept on disk: a new process sends the same bytes as the old one.

    <folder>/<key>.json          which conversations a key has
    <folder>/<key>-<n>.jsonl     one of them
    <folder>/<key>-<n>/          its results, for clients other than Claude Code

Several clients may use one key, and a client begins anew under the same: a conversation is recognised by
its first reply, or, before there is one, by its first message.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.context.formats import WireFormat, encode_canonical, strip_cache_marks
from sevenfold.core.errors import SessionBusy, StorageFailure
from sevenfold.core.protocols import Clock
from sevenfold.proxy.body import ClientBody, UntouchedRequest, decode_raw, make_digest
from sevenfold.proxy.conversation import RelayedConversation
from sevenfold.proxy.keys import ConversationKey, find_claude_results
from sevenfold.storage.files import make_private_dir, read_if_there, write_atomic
from sevenfold.storage.jsonl import hold_closed_log

MOST_OPEN: Final = 10  # Conversations in memory; others are read from disk again
KEPT_DAYS: Final = 30
DAY: Final = 86_400  # Seconds
LARGEST_INDEX: Final = 1 << 20  # Bytes
RESULTS: Final = "results"


class ConversationStart(msgspec.Struct):
    """The beginning by which a conversation is recognised, as digests."""

    id: str
    first: str
    second: str = ""

    def matches(self, first: str, second: str) -> bool:
        return self.second == second if self.second and second else self.first == first


class ConversationStore:
    """Finds the conversation of a request, and opens it."""

    def __init__(
        self,
        folder: Path,
        *,
        home: Path,
        claude: Path,
        environ: Mapping[str, str],
        clock: Clock,
        days: float = KEPT_DAYS,
    ) -> None:
        self.folder, self._home, self._claude = folder, home, claude
        self._environ, self._clock = environ, clock
        self._open: dict[str, RelayedConversation] = {}
        self._days, self._removed_at = days, 0.0

    def find(
        self, key: ConversationKey, body: ClientBody, form: WireFormat, readers: Sequence[str]
    ) -> RelayedConversation:
        """The conversation that this request continues, or a new one."""
        if self._clock.now() - self._removed_at >= DAY:
            self.remove_old()
        start = self._find_start(key.digest, body)
        known = self._open.pop(start.id, None)
        if known is None:
            idle = [one for one in self._open.values() if not one.waiting]
            for one in idle[: max(0, len(self._open) - MOST_OPEN + 1)]:
                self.drop(one)
            known = self._open_conversation(key, start.id, form, readers)
        self._open[start.id] = known  # the newest is last
        return known

    def drop(self, conversation: RelayedConversation) -> None:
        """Close a conversation: it is read from disk again when it is needed."""
        if self._open.pop(conversation.id, None) is not None:
            conversation.close()

    def remove_old(self) -> None:
        """Remove conversations that nobody has gone on with for some days, and has not open either."""
        self._removed_at = self._clock.now()
        before = self._removed_at - self._days * DAY
        for path in [*self.folder.glob("*.jsonl")]:
            with contextlib.suppress(OSError, SessionBusy, StorageFailure):
                if path.stem not in self._open and path.stat().st_mtime < before:
                    with hold_closed_log(path):
                        shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                        path.unlink()
                    for beside in self.folder.glob(f"{path.name}.*"):
                        beside.unlink()
        kept = {path.stem.rpartition("-")[0] for path in self.folder.glob("*.jsonl")}
        for path in [*self.folder.glob("*.json")]:
            with contextlib.suppress(OSError):
                if path.stem not in kept and path.stat().st_mtime < before:
                    path.unlink()

    def close(self) -> None:
        for conversation in self._open.values():
            conversation.close()
        self._open.clear()

    def results_of(self, key: ConversationKey, id: str) -> Path:
        """The folder for whole results: where the client may read it unasked."""
        return find_claude_results(self._claude, key.session) if key.claude else self.folder / id / RESULTS

    def _open_conversation(
        self, key: ConversationKey, id: str, form: WireFormat, readers: Sequence[str]
    ) -> RelayedConversation:
        return RelayedConversation(
            id,
            key.model,
            form,
            state=self.folder,
            home=self._home,
            results=partial(self.results_of, key, id),
            readers=readers,
            environ=self._environ,
            clock=self._clock,
        )

    def _find_start(self, digest: str, body: ClientBody) -> ConversationStart:
        path = self.folder / f"{digest}.json"
        starts = _read_starts(path)
        first, second = (_digest_at(body, at) for at in (0, 1))
        found = next((one for one in starts if one.matches(first, second)), None)
        if found is None or (second and not found.second):
            if found is None:
                found = ConversationStart(f"{digest}-{len(starts) + 1}", first)
                starts.append(found)
            found.second = second
            make_private_dir(self.folder)
            write_atomic(path, msgspec.json.encode(starts))
        return found


def _read_starts(path: Path) -> list[ConversationStart]:
    data = read_if_there(path, LARGEST_INDEX)
    try:
        return msgspec.json.decode(data, type=list[ConversationStart]) if data else []
    except msgspec.MsgspecError:  # damaged: its conversations begin anew
        return []


def _digest_at(body: ClientBody, at: int) -> str:
    """The digest of a message without its marks; empty if there is none."""
    if at >= len(body.messages):
        return ""
    message = decode_raw(body.messages[at])
    if not isinstance(message, dict):
        raise UntouchedRequest(f"messages[{at}] is no object")
    return make_digest(encode_canonical(strip_cache_marks(message)))
