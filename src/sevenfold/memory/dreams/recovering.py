"""Brings a commit that was cut off to its end, or takes it back, so that no half dream stays behind.

Forward when every file is as the dead process left it. Back when somebody has written one of them since:
then nobody knows any more whether the whole would be right. What others wrote stays in both cases, and
what the dream had moved out of a file that somebody has written since comes back into it.
"""

from __future__ import annotations

from pathlib import Path

from sevenfold.errors import Refused, StorageFailure
from sevenfold.memory.dreams.facts import Fact, stated
from sevenfold.memory.dreams.journal import Intent, Journal, Step
from sevenfold.memory.dreams.keeping import with_facts
from sevenfold.memory.dreams.merging import Files, merged_lines
from sevenfold.memory.dreams.shelf import Shelf
from sevenfold.memory.folder.desk import RECORDED, Desk
from sevenfold.memory.folder.files import Opened
from sevenfold.memory.folder.ledger import digest
from sevenfold.memory.folder.listing import is_topic
from sevenfold.memory.folder.reaching import Overtaken, Stamp

_RECENT = 20
"""Revisions among which a dream is looked for that was recorded and not noted as done."""
_TRIES = 20


def finished(desk: Desk, state: Path) -> str:
    """Go on or go back, under the lock and before anything else is done; says which, in a sentence."""
    journal = Journal(state)
    intent = journal.read()
    if intent is None:
        journal.end()
        return ""
    desk.now = intent.at
    if _recorded(desk, intent):
        journal.end()
        return ""
    for _ in range(_TRIES):
        try:
            forward = not journal.turned_back and _nobody_came(desk.at, intent)
            said = _forward(desk, journal, intent) if forward else taken_back(desk, journal, intent)
        except Overtaken:  # somebody writes there right now: look again
            continue
        desk.ledgers.forget()  # what it knows is from before the crash
        return said
    return ""


def taken_back(desk: Desk, journal: Journal, intent: Intent) -> str:
    """Every file that still is what the dream wrote becomes what it was before."""
    journal.turn_back()
    whole = True
    for number in reversed(range(len(intent.steps))):
        try:
            _step_back(desk.at, journal, number, intent.steps[number])
        except (StorageFailure, Refused, Overtaken):
            whole = False
    if not whole or not _all_said(desk.at, journal, intent):
        # the journal stays: the next one tries again
        return (
            f"A dream could not be taken back completely in {desk.folder}: free some space, or make "
            "the folder writable; what it held is kept until then."
        )
    _record(desk, intent, "took back a dream that was cut off")
    journal.end()
    return "A dream that was cut off while it was saved has been taken back; nothing is changed."


def _step_back(at: Opened, journal: Journal, number: int, step: Step) -> None:
    """One file as it was. Where somebody has written since, only what the dream did is taken out."""
    for tries in range(_TRIES):
        data, stamp = _now(at, step.file)
        if _is(data, step.old):
            return
        wanted = journal.content(number, "old", step.old)
        if not _is(data, step.new):
            if data is None or wanted is None or not step.new:
                return  # removed by somebody, or written where nothing was: it is theirs
            made = journal.content(number, "new", step.new)
            wanted = merged_lines(made or b"", wanted, data)
            if wanted is None or len(wanted) > RECORDED:
                return
        try:
            return _put(at, step.file, wanted, stamp)
        except Overtaken:
            if tries == _TRIES - 1:
                raise


def _all_said(at: Opened, journal: Journal, intent: Intent) -> bool:
    """What the dream had moved elsewhere is said again in the file it came from, whoever wrote there."""
    before: dict[str, bytes] = {}
    after: dict[str, bytes] = {}
    made: dict[str, bytes] = {}
    try:
        for number, step in enumerate(intent.steps):
            if not is_topic(step.file):
                continue
            data = _now(at, step.file)[0]
            after |= {step.file: data} if data is not None else {}
            for which, digest_, files in (("old", step.old, before), ("new", step.new, made)):
                if (kept := journal.content(number, which, digest_)) is not None:
                    files[step.file] = kept
        for file, facts in _moved_out(before, made, after).items():
            data, stamp = _now(at, file)
            at.write(file, with_facts(data or b"", facts, ""), stamp)
    except (StorageFailure, Refused):
        return False
    return True


def _moved_out(before: Files, made: Files, after: Files) -> dict[str, list[Fact]]:
    """What is nowhere now, and was not in the file any more when somebody wrote there."""
    there = Shelf(after, before)
    found: dict[str, list[Fact]] = {}
    for file, data in before.items():
        if after.get(file) == data:
            continue
        left = Shelf({file: made[file]} if file in made else {})
        facts = [
            one.fact for one in stated(data, file) if not (there.holder(one) or left.holder(one))
        ]
        found |= {file: facts} if facts else {}
    return found


def _forward(desk: Desk, journal: Journal, intent: Intent) -> str:
    try:
        new = [journal.content(at, "new", step.new) for at, step in enumerate(intent.steps)]
        for step, wanted in zip(intent.steps, new, strict=True):
            data, stamp = _now(desk.at, step.file)
            if not _is(data, step.new):
                _put(desk.at, step.file, wanted, stamp)
    except (StorageFailure, Refused):
        return taken_back(desk, journal, intent)
    _record(desk, intent, intent.summary)
    journal.end()
    return "A dream that was cut off while it was saved has been completed."


def _record(desk: Desk, intent: Intent, summary: str) -> None:
    """In the history stands what is there now; nothing new where nothing changed."""
    files: dict[str, bytes | None] = {}
    for step in intent.steps:
        row = desk.ledger.rows.get(step.file)
        data, _ = _now(desk.at, step.file)
        ours = _is(data, step.old) or _is(data, step.new)
        if ours and not (row and row.held):
            files[step.file] = data
    desk.record(files, intent.author, summary)


def _recorded(desk: Desk, intent: Intent) -> bool:
    """Whether it had come as far as the history: then it was complete."""
    try:
        recent = desk.past.ask(lambda history: history.log(limit=_RECENT))
    except StorageFailure:
        return False
    same = (intent.author, intent.summary, intent.at)
    return any((one.author, one.summary, one.at) == same for one in recent)


def _nobody_came(at: Opened, intent: Intent) -> bool:
    return all(_known(at, step) for step in intent.steps)


def _known(at: Opened, step: Step) -> bool:
    try:
        data, _ = _now(at, step.file)
    except (StorageFailure, Refused):
        return False
    return _is(data, step.old) or _is(data, step.new)


def _is(data: bytes | None, expected: str) -> bool:
    return ("" if data is None else digest(data)) == expected


def _now(at: Opened, file: str) -> tuple[bytes | None, Stamp | None]:
    stamp = at.stamp(file)
    if stamp is None:
        return None, None
    data, stamp = at.read(file, RECORDED + 1)
    return data, stamp


def _put(at: Opened, file: str, data: bytes | None, stamp: Stamp | None) -> None:
    if data is not None:
        at.write(file, data, stamp)
    elif stamp is not None:
        at.remove(file, stamp)
