"""Lets go of what a session keeps on record for good: a replay undoes nothing and is not resumed.

Each compaction leaves a record of all that the user ever said, and the log has them all. Over a long
recording those would take many times the room that the recording itself does.
"""

from __future__ import annotations

from msgspec.structs import replace

from sevenfold.boundary import SPOKEN, STANDS_FOR, record_name
from sevenfold.transcript import Transcript


def forget(log: Transcript) -> None:
    """The entries, which nobody asks for again, and the records of messages that have left the view."""
    log.entries.clear()
    view = log.view
    records = [name for name in view.marks if name.startswith(STANDS_FOR)]
    if len(records) <= 1:
        return
    needed = {record_name(placed.message) for placed in view if placed.by not in SPOKEN}
    if gone := set(records) - needed:
        marks = {name: value for name, value in view.marks.items() if name not in gone}
        log.view = replace(view, marks=marks)
