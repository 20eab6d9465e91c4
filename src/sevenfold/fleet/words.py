"""Words of people that wait for an extraction, as jobs: any worker of the fleet looks through them.

A job carries what the user typed and what the agent answered, as text, and nothing else of the transcript.
It is seen by its tenant alone, and the words are deleted when it is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sevenfold.core.errors import Failure
from sevenfold.core.events import Emit, Event, Failed, Remembered
from sevenfold.core.messages import Text, assistant, user
from sevenfold.core.transcript import Id, Reply, Transcript, encode_entry
from sevenfold.fleet.jobs import WORDS, ClaimedJob, JobQueue
from sevenfold.storage.files import make_private_dir
from sevenfold.storage.jsonl import JsonlLog
from sevenfold.storage.places import claim_places, find_places
from sevenfold.storage.waiting_notes import WaitingFolder

if TYPE_CHECKING:
    from sevenfold.fleet.worker import JobOutcome
    from sevenfold.layers.l5_durable_memory.earlier_words import EarlierWords
    from sevenfold.memory.store import MemoryStore

EXTRACT: Final = "extract"
RESERVE: Final = 0.05  # What looking through the words of one job may cost, in the currency of the prices
_SETTINGS: Final[Mapping[str, Any]] = {
    "extraction": {"leastRequests": 0, "drainSeconds": 3_600.0, "nonInteractive": True, "byFleet": False},
    "flags": {"dream": False},
}


def add_words(queue: JobQueue, space: int, words: EarlierWords) -> Id:
    """Make a job of these words; returns the last entry that a job has by now.

    What was put and not crossed off, because a process died in between, is not put again.
    """
    key = f"{words.session}:{words.since}"
    text = b"".join(encode_entry(entry) + b"\n" for entry in _make_transcript(words).entries)
    given = {"session": words.session, "last": words.last, WORDS: text.decode()}
    if queue.add(space, EXTRACT, given, key):
        return words.last
    return int(queue.read_payload(space, EXTRACT, key)["last"])


def _make_transcript(words: EarlierWords) -> Transcript:
    """What was said, as text."""
    from sevenfold.layers.l5_durable_memory.provenance import is_typed
    from sevenfold.layers.l5_durable_memory.recall import extract_typed_text

    times = {entry.id: entry.at for entry in words.entries}
    now = [0.0]
    made = Transcript(lambda: now[0])
    for id, message in words.replaced:
        now[0] = times.get(id, 0.0)
        made.add(user(extract_typed_text(message)))
    for one in words.placed:
        now[0], text = times.get(one.id, 0.0), one.message.text.strip()
        if is_typed(one) and text:
            made.add(user(extract_typed_text(one.message)))
        elif one.message.role == "assistant" and text:
            made.add(Reply(assistant(Text(text))), by="model")
    return made


class Learner:
    """Looks through the words of jobs, by a session of its own with the worker's model and settings."""

    def __init__(
        self,
        home: Path,
        model: str | None = None,
        environ: Mapping[str, str] | None = None,
        emit: Emit | None = None,
        reserve: float = RESERVE,
    ) -> None:
        self.home, self.reserve = home, reserve
        self._model, self._environ = model, environ
        self._emit = emit

    def look_through(self, job: ClaimedJob, store: MemoryStore) -> JobOutcome:
        """Save what is worth remembering into this replica. Raises `Failure` if it was not looked at."""
        import anyio

        return anyio.run(self._look_through, job, store)

    async def _look_through(self, job: ClaimedJob, store: MemoryStore) -> JobOutcome:
        from sevenfold.fleet.worker import JobOutcome
        from sevenfold.session.session import Session

        tree = make_private_dir(store.path_of().parent / "tree")
        places = claim_places(find_places(tree, self.home))
        name, waiting = str(job.payload["session"]), WaitingFolder(places.project)
        path = places.session_file(name)
        for left in (*places.project.glob("*.jsonl"), *(places.project / "waiting").glob("*.json")):
            left.unlink()  # of a worker that was killed
        settings = {**_SETTINGS, "memoryDirectory": str(store.path_of())}
        found, failed, cost = list[str](), list[str](), 0.0

        def hear(event: Event) -> None:
            if isinstance(event, Remembered):
                found.append(event.name)
            elif isinstance(event, Failed):
                failed.append(event.cause)
            if self._emit is not None:
                self._emit(event)

        try:
            with JsonlLog(path) as log:
                log.append(str(job.payload[WORDS]).encode())
            waiting.write(name, -1)
            ours = Session(
                self._model, tree, home=self.home, environ=self._environ, settings=settings,
                started_by="learn", interactive=True,
            )  # fmt: skip
            ours.subscribe(hear)
            async with ours:  # it takes up the words that wait, and its end waits for that
                pass
            cost = sum(line.cost or 0.0 for line in ours.ledger.lines)
            if waiting.read(name) is not None:
                raise Failure("; ".join(failed) or "the words were not looked through")
        finally:
            waiting.remove(name)
            path.unlink(missing_ok=True)
        return JobOutcome({"memories": found}, cost)
