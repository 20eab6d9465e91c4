"""A machine's copy of the memories of a fleet: files, history and index stay here, and recall asks nobody.

The local history is the outbox: revisions after the last one that was sent wait there. Changes of others
come by cursor and become revisions here, with their authors, so that any machine can undo them; a machine
that joins, or was away for long, takes the newest texts alone. The index is no memory: each machine keeps
its own from the files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Failure, Mistake, Refused, SevenfoldError
from sevenfold.fleet.database import FleetAway
from sevenfold.fleet.jobs import ClaimedJob, JobQueue
from sevenfold.fleet.memories import PAGE, ConflictingWrite, FleetMemories, NewRevision, SharedRevision
from sevenfold.memory.backend import ConcurrentWrite, RevisionLog, StateRecords, is_topic
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.history.history import add_past, keep_numbers
from sevenfold.memory.history.revisions import Author, Revision
from sevenfold.memory.merge import merge_texts
from sevenfold.memory.store import MemoryStore

if TYPE_CHECKING:
    from sevenfold.core.transcript import Id
    from sevenfold.layers.l5_durable_memory.earlier_words import EarlierWords
    from sevenfold.layers.l7_agents.mail import FarPost

ROOM: Final = "fleet"
EVERY: Final = 1.0  # Seconds between two looks at the feed
NOTE_EVERY: Final = 30.0  # Seconds after which a machine that read nothing new says that it is there
_WAITS: Final = (1.0, 2.0, 5.0, 15.0, 60.0)  # Seconds until the next try while the database is away
_BATCH: Final = 100
MANY: Final = 200  # Changes that wait; if there are more, a machine takes the newest texts alone
_LATE: Final = 3  # Conflicts in a row after which a machine asks for a turn
_LAST: Final = (1 << 63) - 1  # After every number in one transaction
_LARGEST: Final = 1 << 16
_FILE: Final = "file:"
_PURGES: Final = "purges"  # The record of what the database has to forget
_JOINED: Final = Author("other", reason="joined the fleet")
_CAUGHT_UP: Final = Author("other", reason="caught up with the fleet")
_NAME: Final = re.compile(rb"^name:.*$", re.MULTILINE)


class ReplicaState(msgspec.Struct):
    """How far this machine has sent and read."""

    sent: int = 0  # The number of the last local revision that is in the database
    xid: int = 0
    seq: int = 0
    catching_up: bool = False  # The newest texts are being taken; until that is done no change alone is


class RevisionGap(msgspec.Struct, frozen=True, array_like=True):
    """Revisions of a file that are in the database alone; here revision n is to have number offset + n."""

    offset: int
    after: int
    last: int


class KnownFile(msgspec.Struct, frozen=True):
    """The revision of the database on which the local file stands."""

    rev: int = 0
    digest: str = ""  # Of its text; empty if it is removed
    since: int = 0  # Local revisions of the file up to this number are not sent: a merge holds them
    gaps: tuple[RevisionGap, ...] | None = None  # None where it is noted: they stay as they were


class PostgresBackend(FolderBackend):
    """Memories in a folder of this machine that is kept like those of all other machines."""

    def __init__(self, folder: Path, state: Path, memories: FleetMemories, note: str = "") -> None:
        """`note` is told once to whoever uses the history."""
        super().__init__(folder, state)
        self.memories, self._note = memories, note
        self.outbox = Outbox(self, memories.machine)
        self.workers: Path | None = None  # The folder where workers of this machine keep replicas
        self._follower: FleetFollower | None = None

    def revisions(self, tell: Callable[[str], None]) -> RevisionLog:
        if self._note:
            tell(self._note)
            self._note = ""
        return SharedHistory(super().revisions(tell), self, tell)

    def own_revisions(self) -> RevisionLog:
        """The history on this machine, which sends nothing."""
        return super().revisions(lambda sentence: None)

    def fetch_past(self, *files: str) -> None:
        """Add to the history what these files, or all, were while this machine took the newest texts."""
        every = (name.removeprefix(_FILE) for name in self.outbox.records.sizes() if name.startswith(_FILE))
        for file in files or every:
            if gaps := (known := self.outbox.read_known(file)).gaps:
                for gap in gaps:
                    past = self._read_gap(file, gap)
                    with self.open_history().write() as db:
                        add_past(db, file, past, gap.offset + gap.after if gap.after else 0)
                self.outbox.write_known(file, replace(known, gaps=()))

    def _read_gap(self, file: str, gap: RevisionGap) -> list[tuple[Revision, bytes | None]]:
        from sevenfold.memory.guard.guard import Guard

        past = list[tuple[Revision, bytes | None]]()
        for row in self.memories.read_past(file, gap.after, gap.last):
            if row.body is None or Guard().check(row.body, source="other").passed:
                id = hashlib.blake2b(f"{row.id}:{file}".encode(), digest_size=20).hexdigest()
                number, when = gap.offset + row.rev, limit_time(row.at)
                past.append((Revision(id, when, row.author, row.summary, (), number), row.body))
        return past

    def drop_replicas(self) -> list[str]:
        """Remove what workers of this machine keep, but for what is in use: they make it anew."""
        from sevenfold.fleet.membership import drop_replicas

        return drop_replicas(self.workers) if self.workers is not None else []

    def follow(self, store: MemoryStore) -> None:
        """Read and send in the background, until `close`."""
        self._follower = FleetFollower(store, self)

    def take_words(self, words: EarlierWords) -> Id:
        """Make a job of words that wait for an extraction; returns the last entry that a job has."""
        from sevenfold.fleet.words import add_words

        return add_words(JobQueue(self.memories.database), self.memories.space, words)

    def open_post(self, session: str) -> FarPost:
        """The mail of a session with other machines."""
        from sevenfold.fleet.mail import FleetPost

        return FleetPost(self.memories, session)

    def close(self) -> None:
        if self._follower is not None:
            self._follower.stop()
        with contextlib.suppress(SevenfoldError, ConflictingWrite):  # it waits
            self.outbox.send()
        self.memories.database.close()
        super().close()


class SharedHistory:
    """The local history, whose revisions are sent as soon as they are made."""

    def __init__(self, own: RevisionLog, backend: PostgresBackend, tell: Callable[[str], None]) -> None:
        self._own, self._backend, self._outbox, self._tell = own, backend, backend.outbox, tell
        self.at, self.file_at, self.diff = own.at, own.file_at, own.diff
        self.changes, self.find, self.mend = own.changes, own.find, own.mend

    def log(self, file: str | None = None, limit: int = 50) -> list[Revision]:
        if file is not None:
            try:
                self._backend.fetch_past(file)
            except Failure as error:
                raise FleetAway(f"what {file} was before is in the fleet alone: {error}") from error
        return self._own.log(file, limit)

    def record(self, *given: Any, **named: Any) -> Revision | None:
        made = self._own.record(*given, **named)
        if made is not None:
            try:
                self._outbox.send()
            except Mistake as error:  # it is saved here, and waits until somebody mends that
                self._tell(str(error))
            except (Failure, ConflictingWrite):  # it waits, and the follower merges
                pass
        return made

    def purge(self, *names: str, at: float = 0.0) -> object:
        done = self._own.purge(*names, at=at)
        self._backend.drop_replicas()
        if names == (self._outbox.heard,):  # another machine purged it, and the database knows
            return done
        self._outbox.note_purge(*names)
        try:
            self._outbox.send()
        except ConflictingWrite:
            pass  # of something else; purges go first
        except SevenfoldError as error:
            self._tell(f"purged here; the database has it until this machine reaches it: {error}")
        return done


_Batch: TypeAlias = list[tuple[Revision, list[NewRevision]]]


class Outbox:
    """The revisions of this machine that are not in the database yet."""

    def __init__(self, backend: PostgresBackend, machine: str) -> None:
        self._backend, self.machine = backend, machine
        self._turn = threading.Lock()
        self._failures, self._not_before = 0, 0.0
        self._noted, self._note_again = (-1, -1, -1), 0.0
        self.heard = ""  # The file that is being purged because another machine did
        self.job: ClaimedJob | None = None  # The job on whose behalf this machine writes

    @property
    def records(self) -> StateRecords:
        return self._backend.state(ROOM)

    def read_state(self) -> ReplicaState:
        data = self.records.read("state", _LARGEST)
        return msgspec.json.decode(data, type=ReplicaState) if data else ReplicaState()

    def write_state(self, state: ReplicaState) -> None:
        self.records.write("state", msgspec.json.encode(state), lasting=False)

    def read_known(self, file: str) -> KnownFile:
        data = self.records.read(f"{_FILE}{file}", _LARGEST)
        return msgspec.json.decode(data, type=KnownFile) if data else KnownFile()

    def write_known(self, file: str, base: KnownFile) -> None:
        old = self.read_known(file)
        if base.rev >= old.rev:  # what was sent again has the number of the first time
            base = base if base.gaps is not None else replace(base, gaps=old.gaps)
            self.records.write(f"{_FILE}{file}", msgspec.json.encode(base), lasting=False)

    def advance(self, xid: int, seq: int) -> None:
        """Note how far this machine has read; another process of it may have read further."""
        with self.records.lock():
            state = self.read_state()
            if (xid, seq) > (state.xid, state.seq):
                state.xid, state.seq, state.catching_up = xid, seq, False
                self.write_state(state)

    def start_catching_up(self) -> ReplicaState:
        """Note that the newest texts are being taken: whoever goes on after a crash does that, too."""
        with self.records.lock():
            self.write_state(state := replace(self.read_state(), catching_up=True))
        return state

    def note_purge(self, *files: str) -> None:
        """Keep in mind that the database has to forget these."""
        with self.records.lock():
            waiting = {*self.list_purges(), *files}
            self.records.write(_PURGES, msgspec.json.encode(sorted(waiting)))

    def list_purges(self) -> list[str]:
        """The files that the database has to forget."""
        data = self.records.read(_PURGES, _LARGEST)
        return msgspec.json.decode(data, type=list[str]) if data else []

    def list_waiting(self) -> list[Revision]:
        """The revisions that wait, the oldest first."""
        sent, history = self.read_state().sent, self._backend.own_revisions()
        newest = history.log(limit=1)
        if not newest or newest[0].number <= sent:
            return []
        waiting = history.log(limit=newest[0].number - sent)
        return [one for one in reversed(waiting) if one.number > sent]

    def send(self) -> int:
        """Send what waits; returns the number of files. Raises `FleetAway` and `ConflictingWrite`."""
        if self.job is not None:  # sent at its end, with its fence: `finish_job`
            return 0
        with self._turn, self.records.lock():  # other processes of this machine send the same
            if time.monotonic() < self._not_before:
                raise FleetAway("the database of the fleet could not be reached just now")
            try:
                self._send_purges()
                count = sum(map(self._write, self._iter_batches()))
            except FleetAway:
                self._not_before = time.monotonic() + _WAITS[min(self._failures, len(_WAITS) - 1)]
                self._failures += 1
                raise
            self._failures, self._not_before = 0, 0.0
            return count

    def taking(self) -> AbstractContextManager[object]:
        """One process of this machine at a time takes in what others wrote, and books it as theirs."""
        return self._backend.state(f"{ROOM}-news").lock()

    def make_way(self, tried: int) -> None:
        """After a conflict: ask for a turn of our own if there were several, and let others have theirs."""
        if tried >= _LATE:
            files = {file for one in self.list_waiting() for file in _topics(one)}
            self._backend.memories.reserve(sorted(files))
            time.sleep(0.05 * min(tried - _LATE, 10))

    def finish_job(self, job: ClaimedJob, result: Mapping[str, Any], cost: float = 0.0) -> None:
        """Send all that was written for a job, with its end. Raises `ConflictingWrite` and `OldFence`."""
        with self._turn, self.records.lock():
            ahead: dict[str, KnownFile] = {}
            batches = [*self._iter_batches(ahead)]
            rows = [[row for _, some in batch for row in some] for batch in batches]
            self._backend.memories.write_job(rows, job, result, cost)
            for file, known in ahead.items():
                self.write_known(file, known)
            if batches:
                self._note_sent(batches[-1])

    def _iter_batches(self, ahead: dict[str, KnownFile] | None = None) -> Iterator[_Batch]:
        """What waits, each time as files of different names.

        With `ahead` nothing is written in between: it takes the revisions that the files will have.
        """
        batch: _Batch = []
        names: set[str] = set()
        for revision in self.list_waiting():
            if batch and (names.intersection(_topics(revision)) or len(batch) >= _BATCH):
                yield batch
                batch, names = [], set()
            rows = self._rows(revision, ahead or {})
            batch.append((revision, rows))
            names |= {row.name for row in rows}
            if ahead is not None:
                ahead |= {row.name: KnownFile(row.base + 1, digest_text(row.body)) for row in rows}
        if batch:
            yield batch

    def _rows(self, revision: Revision, ahead: Mapping[str, KnownFile]) -> list[NewRevision]:
        history, rows = self._backend.own_revisions(), list[NewRevision]()
        for file in _topics(revision):
            base = ahead.get(file) or self.read_known(file)
            data = history.file_at(revision.id, file)
            if revision.number > base.since and digest_text(data) != base.digest:
                id, said = f"{self.machine}-{revision.id}", revision.summary
                rows.append(NewRevision(id, file, base.rev, data, revision.author, said, revision.at))
        return rows

    def _write(self, batch: _Batch) -> int:
        rows = [row for _, some in batch for row in some]
        if rows:
            try:
                revs = self._backend.memories.write(rows)
            except ConflictingWrite:
                if len(batch) == 1:
                    raise
                return sum(self._write([one]) for one in batch)
            for row in rows:
                self.write_known(row.name, KnownFile(revs[row.name], digest_text(row.body)))
        self._note_sent(batch)
        return len(rows)

    def _note_sent(self, batch: _Batch) -> None:
        state = self.read_state()
        state.sent = batch[-1][0].number
        self.write_state(state)

    def note_seen(self, held: int) -> None:
        """Say how far this machine has read, if that is new; at each look it would be a write a second."""
        state, now = self.read_state(), time.monotonic()
        place = (state.xid, state.seq, held)
        if place != self._noted or now >= self._note_again:
            self._backend.memories.note_seen(*place)
            self._noted, self._note_again = place, now + NOTE_EVERY

    def send_purges(self) -> None:
        """Let the database forget what was purged here: before anything of it is taken in again."""
        with self._turn, self.records.lock():
            self._send_purges()

    def _send_purges(self) -> None:
        waiting = self.list_purges()
        for file in waiting:
            rev = self._backend.memories.purge(file, f"{self.machine}-purge-{time.time_ns()}")
            self.write_known(file, KnownFile(rev, gaps=()))  # a new memory of that name stands on the purge
        if waiting:  # removing it is synced to the disk
            self.records.remove(_PURGES)


def _topics(revision: Revision) -> list[str]:
    return [change.file for change in revision.files if is_topic(change.file)]


def digest_text(data: bytes | None) -> str:
    return "" if data is None else hashlib.blake2b(data, digest_size=16).hexdigest()


def limit_time(at: float) -> float:
    """The time that another machine gave to a change, or now if it cannot be."""
    now = SystemClock().now()
    return at if 0 <= at <= now else now


class FleetSync:
    """Takes the changes of others into the folder, and sends what is new here."""

    def __init__(self, store: MemoryStore, backend: PostgresBackend) -> None:
        self._store, self._backend, self._outbox = store, backend, backend.outbox

    def _take_newest(self, tell: Callable[[int], object]) -> int:
        """Take in the newest text of each memory that changed; returns the number of files that came."""
        memories, name, count = self._backend.memories, "", 0
        state = self._outbox.start_catching_up()
        horizon = memories.find_horizon()  # what is written from now on comes by the feed
        while heads := memories.read_heads(name, since=(state.xid, state.seq)):
            name = heads[-1].name
            with self._outbox.taking():
                came, others = self._take_heads([row for row in heads if is_topic(row.name)])
                self._store.take_in(_CAUGHT_UP if state.xid else _JOINED)
            count += came
            for file, rev in others.items():
                for row in memories.read_past(file, rev):
                    with contextlib.suppress(Refused):
                        count += self._take(row)
            tell(count) if len(heads) == PAGE else None
        self._outbox.advance(horizon - 1, _LAST)
        return count

    def _take_heads(self, rows: Sequence[SharedRevision]) -> tuple[int, dict[str, int]]:
        """Write what changed elsewhere alone; returns the count, and after which revs to merge others."""
        count, known, others = 0, dict[str, KnownFile](), dict[str, int]()
        purges = self._backend.memories.find_purges([row.name for row in rows])
        with self._backend.opened(make=True) as at, at.alone():
            bases = {row.name: self._outbox.read_known(row.name) for row in rows}
            rows = [row for row in rows if row.rev > bases[row.name].rev]
            with self._backend.open_history().write() as db:
                before = keep_numbers(db, sum(row.rev - bases[row.name].rev for row in rows))
            for row in rows:
                base = bases[row.name]
                gap = RevisionGap(before - base.rev, base.rev, row.rev)
                before += row.rev - base.rev
                with contextlib.suppress(Refused):  # a name that no machine writes: it stops nobody
                    stamp = at.stamp(row.name)
                    ours = at.read(row.name)[0] if stamp is not None else None
                    stands, body = self._choose_text(row, ours, base, gap, purges.get(row.name, 0))
                    if body is not None and body != ours:
                        at.write(row.name, body, stamp, lasting=False, modified=limit_time(row.at))
                    elif body is None and stamp is not None:
                        at.remove(row.name, stamp)
                    known[row.name], count = stands, count + (body != ours)
                    others |= {row.name: stands.rev} if stands.rev < row.rev else {}
            os.sync()  # once, and not for each file
            for file, one in known.items():
                self._outbox.write_known(file, one)
        return count, others

    def _choose_text(
        self, row: SharedRevision, ours: bytes | None, base: KnownFile, gap: RevisionGap, purge: int
    ) -> tuple[KnownFile, bytes | None]:
        """Where a file is to stand, with its text: the newest, unless it was changed here as well."""
        logged = len(self._backend.own_revisions().log(row.name, 2))
        clean = digest_text(ours) == base.digest and bool(base.rev or not logged)
        same = row if clean else self._find_same(row, ours, base)
        if same is None or (purge > base.rev and (base.rev or logged or ours is not None)):
            return base, ours
        gaps, body = base.gaps or (), same.body
        if clean and body is not None and not self._store.let_in(row.name, body, ours or b"", row.author):
            body = ours  # what is here stays, and stands on that revision
        elif not (same.purged or (base.rev == 0 and logged > 1) or self._is_ours(same)):
            gaps = (*gaps, replace(gap, last=same.rev))
        return KnownFile(same.rev, digest_text(body), gap.offset + same.rev, gaps), body

    def _find_same(self, row: SharedRevision, ours: bytes | None, base: KnownFile) -> SharedRevision | None:
        """The last revision whose text is here: of a look that was interrupted, or in a copied folder."""
        if ours is None or ours == row.body:
            return row if ours is not None else None
        past = self._backend.memories.read_past(row.name, base.rev)
        return next((one for one in reversed(past) if one.body == ours), None)

    def run(self, tell: Callable[[int], object] = lambda count: None) -> int:
        """Read all that is new, merge, and send; returns the number of files that came, and tells it."""
        self._outbox.send_purges()
        state = self._outbox.read_state()
        count = self._take_newest(tell) if state.xid == 0 or state.catching_up else 0
        for tried in range(_BATCH):
            try:
                count += self._read_all(tell)
                self._outbox.send()
            except ConcurrentWrite:  # a program that holds no lock: look again
                continue
            except ConflictingWrite:  # another machine was faster: its change is in the feed now
                self._outbox.make_way(tried)
                continue
            self._outbox.note_seen(self._store.quarantine.count())
            return count
        raise FleetAway("other machines keep changing the same memories; this one tries again later")

    def _read_all(self, tell: Callable[[int], object]) -> int:
        count = 0
        while rows := self._read_page():
            if len(rows) > MANY:
                count += self._take_newest(tell)
                continue
            for row in rows:
                with contextlib.suppress(Refused):  # a name that no machine writes: it stops nobody
                    count += self._take(row)
            self._outbox.advance(rows[-1].xid, rows[-1].seq)
            if len(rows) < PAGE:
                break
        return count

    def _read_page(self) -> list[SharedRevision]:
        state = self._outbox.read_state()
        return self._backend.memories.read_changes(state.xid, state.seq)

    def _take(self, row: SharedRevision) -> bool:
        """Bring one change into the folder; False if it was here already."""
        with self._outbox.taking():
            return self._take_row(row)

    def _take_row(self, row: SharedRevision) -> bool:
        base = self._outbox.read_known(row.name)
        if row.rev <= base.rev or not is_topic(row.name):
            return False
        if row.purged:
            return self._purge(row)
        if self._is_own(row):
            return False
        with self._backend.opened(make=True) as at, at.alone():
            stamp = at.stamp(row.name)
            ours = at.read(row.name)[0] if stamp is not None else None
            if ours is None and row.name in self._outbox.list_purges():
                return False  # another process of this machine purges it just now
            if digest_text(ours) == digest_text(row.body):
                since = self._find_merged(row.name, as_it_was=False)
                self._outbox.write_known(row.name, KnownFile(row.rev, digest_text(row.body), since))
                return False
            unsent = digest_text(ours) != base.digest
            if row.body is not None and not self._store.let_in(
                row.name, row.body, ours or b"", row.author
            ):  # what is here stays, and stands on that revision from now on
                self._outbox.write_known(row.name, KnownFile(row.rev, base.digest, base.since))
                return False
            written = self._merge(row, ours, base) if unsent else {row.name: row.body}
            if unsent:
                author, said, when = Author("other", reason="merged two machines' changes"), "", None
            else:  # as its author made it, whatever finds it here first
                author, said, when = row.author, row.summary, limit_time(row.at)
            self._store.announce_taken(written, author, said, when or 0.0)
            for file, data in written.items():
                there = at.stamp(file)
                if data is not None:
                    at.write(file, data, there, modified=when)
                elif there is not None:
                    at.remove(file, there)
            # If nothing of ours waits, what does is what came from others before, and is not sent back.
            since = self._find_merged(row.name, as_it_was=unsent and written[row.name] == ours)
            self._outbox.write_known(row.name, KnownFile(row.rev, digest_text(row.body), since))
        for file in written:
            self._store.take_in(author, file)
        return True

    def _is_own(self, row: SharedRevision) -> bool:
        """True for a revision that this machine sent before it died: what it has now came after that."""
        if not self._is_ours(row):
            return False
        try:
            number = self._backend.own_revisions().find(row.id.rpartition("-")[2]).number
        except Mistake:
            return False
        self._outbox.write_known(row.name, KnownFile(row.rev, digest_text(row.body), number))
        return True

    def _is_ours(self, row: SharedRevision) -> bool:
        return row.id.rpartition("-")[0] == self._outbox.machine

    def _purge(self, row: SharedRevision) -> bool:
        self._outbox.heard = row.name
        try:
            self._store.purge_file(row.name)
        finally:
            self._outbox.heard = ""
        self._outbox.write_known(row.name, KnownFile(row.rev, gaps=()))
        return True

    def _merge(self, row: SharedRevision, ours: bytes | None, base: KnownFile) -> dict[str, bytes | None]:
        """The files that keep both changes."""
        if ours is None or row.body is None:  # a change outlives a removal
            return {row.name: ours if row.body is None else row.body}
        before = self._backend.memories.read_body(row.name, base.rev) if base.rev else None
        both = merge_texts(before, ours, row.body)
        if both is not None:
            return {row.name: both}
        beside = f"{row.name.removesuffix('.md')}-{self._outbox.machine[:8]}.md"
        own_name = b"name: " + Path(beside).stem.encode()
        return {row.name: row.body, beside: _NAME.sub(lambda _: own_name, ours, count=1)}

    def _find_merged(self, file: str, *, as_it_was: bool) -> int:
        """The number up to which local revisions of a file need not be sent.

        A merge makes a revision of its own. If it left the file as it was, the last one is sent instead.
        """
        newest = self._backend.own_revisions().log(file if as_it_was else None, limit=1)
        return newest[0].number - as_it_was if newest else 0


class FleetFollower:
    """A thread that keeps a replica up to date while its store is in use."""

    def __init__(self, store: MemoryStore, backend: PostgresBackend) -> None:
        self._done = threading.Event()
        given = (weakref.ref(store), backend, self._done)
        self._thread = threading.Thread(target=_follow, args=given, name="sevenfold-fleet", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join(timeout=5)


def _follow(watched: weakref.ref[MemoryStore], backend: PostgresBackend, done: threading.Event) -> None:
    wait = 0.0
    while not done.wait(wait):
        store = watched()
        if store is None:
            return
        try:
            FleetSync(store, backend).run()
            wait = EVERY
        except (SevenfoldError, ConcurrentWrite):
            wait = 5.0
        del store
