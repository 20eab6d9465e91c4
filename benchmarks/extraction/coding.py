"""Recorded coding sessions, looked through by a fork and by a lean request: what the lean one misses."""

from __future__ import annotations

import tempfile
from multiprocessing import Pool
from pathlib import Path
from typing import Final

import anyio
import msgspec

from benchmarks.extraction.learning import Learner, Looked
from benchmarks.policy.samples import session_files
from benchmarks.report import Table
from sevenfold.core.messages import Message
from sevenfold.core.transcript import Reply, Transcript
from sevenfold.layers.l5_durable_memory.provenance import SourceMessages
from sevenfold.layers.shared.side_work import make_lean_messages
from sevenfold.offline import OfflineEngine
from sevenfold.recordings.claude_code import read_session
from sevenfold.recordings.recorded_session import convert_recording

WINDOW: Final = 2_000_000  # Sessions are looked through whole, without their compactions


class Seen(msgspec.Struct, frozen=True):
    """A session, what may be a source in it, what of that a lean request holds, and what both saved."""

    typed: int
    typed_held: int
    replies: int
    replies_held: int
    forked: Looked
    lean: Looked


def coding_table(quick: bool) -> Table:
    files = session_files()[: 8 if quick else None]
    table = Table(
        "offline: recorded coding sessions, lean against the fork",
        *("sessions", "typed texts", "held by lean %", "replies that count", "held by lean %"),
        *("saved by fork", "lean", "tokens of messages fork", "lean"),
    )
    with Pool(2) as pool:
        found = pool.map(_measured, files, chunksize=1)
    if not found:
        table.notes.append("skipped: the shared sessions are not beside this checkout")
        return table

    def total(field: str) -> int:
        return sum(getattr(one, field) for one in found)

    table.add(
        len(found),
        total("typed"),
        _percent(total("typed_held"), total("typed")),
        total("replies"),
        _percent(total("replies_held"), total("replies")),
        sum(len(one.forked.saved) for one in found),
        sum(len(one.lean.saved) for one in found),
        f"{sum(one.forked.tokens for one in found):,}",
        f"{sum(one.lean.tokens for one in found):,}",
    )
    table.notes += [
        "typed texts and replies that count: all that a memory may rest on, by the rules of provenance; "
        "held: every paragraph stands word for word in the lean request",
        "tokens: our estimate of whole sessions, without the system prompt and the tools of the recorded "
        "client, which a fork carries too",
    ]
    return table


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def read_log(path: Path) -> Transcript:
    """A recorded session, whole, without its compactions."""
    log = Transcript(lambda: 0.0)
    for entry in convert_recording(read_session(path)).entries:
        if isinstance(entry.what, Message | Reply):
            log.add(entry.what, by=entry.by)
    return log


def _measured(path: Path) -> Seen:
    log = read_log(path)
    view = log.view
    told = "\n".join(message.text for message in make_lean_messages(view, view))
    sources = SourceMessages(view, log.entries, 0.0).said
    typed = [one.text for one in sources if one.by_user]
    replies = [one.text for one in sources if not one.by_user]
    return Seen(
        len(typed),
        sum(_is_held(text, told) for text in typed),
        len(replies),
        sum(_is_held(text, told) for text in replies),
        *(anyio.run(_looked, log, path.name, lean) for lean in (False, True)),
    )


def _is_held(text: str, told: str) -> bool:
    """Paragraph by paragraph: what somebody pasted is no source, and leaves a gap between two of them."""
    return all(part.strip() in told for part in text.split("\n\n"))


async def _looked(log: Transcript, name: str, lean: bool) -> Looked:
    with tempfile.TemporaryDirectory() as folder:
        learner = Learner(OfflineEngine(WINDOW), Path(folder), lean=lean)
        return await learner.look_through(log, name)
