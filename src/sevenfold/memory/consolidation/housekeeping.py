"""Tidies the index, archives projects that are over, and makes memories of daily logs.

What a line of the index says beyond its memory is moved into the memory before the line is cut or removed.
Recall finds memories that the index has no room for, and archived projects.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias

from sevenfold.core.errors import Refused
from sevenfold.memory.backend import is_topic
from sevenfold.memory.consolidation.dates import find_noon, format_day
from sevenfold.memory.consolidation.sentences import append_paragraph, read_description, read_sentences
from sevenfold.memory.consolidation.staged_memories import (
    ArchivedMemory,
    LoggedMemory,
    MemoryMove,
    StagedFiles,
    relink_files,
    relink_text,
    save_hook,
)
from sevenfold.memory.daily_logs import parse_log_day
from sevenfold.memory.dates.relative import list_relative_dates
from sevenfold.memory.dates.written_dates import find_dates
from sevenfold.memory.dreams.losses import StatementIndex
from sevenfold.memory.dreams.statements import read_facts
from sevenfold.memory.folder.folder import ARCHIVE
from sevenfold.memory.folder.names import (
    choose_file,
    explain_bad_file,
    explain_bad_name,
    make_file_key,
    make_slug,
)
from sevenfold.memory.index import (
    CHARACTERS,
    HOOK,
    INDEX,
    LINES,
    SHORTEST_HOOK,
    UNLISTED,
    IndexRow,
    drop_pointers,
    list_exceeded_limits,
    parse_pointers,
    split_rows,
    split_unlisted,
)
from sevenfold.memory.index_update import fit_index, plan_text, retell_index
from sevenfold.memory.recall_results import DAY
from sevenfold.memory.topic_file import (
    TYPES,
    Origin,
    Topic,
    Type,
    change_topic,
    encode_new_topic,
    read_topic,
    shorten_text,
)

NOTES: Final = "kept-from-the-index.md"  # The memory for hand-written lines that the index has no room for
_ROUNDS: Final = 5
_NAMED: Final = 5
_MENDED: Final = "Lines that stood twice or said the old are put right."
_HEADING: Final = re.compile(r"\s*#{1,6}\s")


def tidy_index(files: StagedFiles, known: frozenset[str]) -> list[str]:
    """Put the index right; `known` are files that exist but are not in this folder. Says what it did."""
    before = files.index
    changed = [topic for topic in files.active() if files.before.get(topic.file, topic.data) != topic.data]
    retold = [(read_topic(files.before[topic.file], topic.file), topic) for topic in changed]
    files.index = retell_index(files.index, retold)
    done = [*_aimed_anew(files, known), *_shortened_lines(files)]
    for _ in range(_ROUNDS):
        text = files.index
        done += _fitted(files, known)
        if files.index == text:
            break
    done += _summary(before, files.index) or ([] if done else [_MENDED])
    return list(dict.fromkeys(done)) if files.index != before else []


def _aimed_anew(files: StagedFiles, known: frozenset[str]) -> list[str]:
    """A line whose file has moved or is spelled otherwise points to it again."""
    there = {make_file_key(file) for file in (*files.now, *known)}
    spelled: dict[str, list[str]] = {}
    for topic in files.active():
        for word in {make_slug(topic.file.rpartition("/")[2].removesuffix(".md")), make_slug(topic.name)}:
            spelled.setdefault(word, []).append(topic.file)
    done: list[str] = []
    out: list[str] = []
    for row in split_rows(files.index):
        text = row.text
        for link in row.links if row.pointing and not row.by_name else ():
            if make_file_key(link.file) in there:
                continue
            stem = make_slug(link.file.rpartition("/")[2].removesuffix(".md"))
            meant = set(spelled.get(stem, [])) or set(spelled.get(make_slug(link.title), []))
            if len(meant) == 1:
                file = meant.pop()
                text = relink_text(text, link.file, file)
                done.append(f"The line for {link.file} points to {file} now.")
        out.append(text)
    if done:
        files.index = "".join(out)
    return done


def _shortened_lines(files: StagedFiles) -> list[str]:
    """Lines over the limit keep a hook; what else they say stands in the memory afterwards."""
    there = {make_file_key(topic.file): topic for topic in files.active()}
    count = 0
    out: list[str] = []
    for row in split_rows(files.index):
        text = row.text
        if _can_be_cut(row) and (topic := there.get(make_file_key(row.links[0].file))) is not None:
            hook = " ".join(parse_pointers(row)[0].hook.split())
            text = _cut(row, hook)
            if text != row.text and not _kept(files, topic, hook):
                text = row.text
            count += text != row.text
        out.append(text)
    if not count:
        return []
    files.index = "".join(out)
    return [f"{count} line{'s' * (count > 1)} of more than {HOOK} characters became shorter."]


def _can_be_cut(row: IndexRow) -> bool:
    if not row.pointing or len(row.links) != 1 or row.text.lstrip().startswith("|"):
        return False
    return any(len(line) > HOOK for line in row.text.splitlines())


def _cut(row: IndexRow, hook: str) -> str:
    head = row.text[: row.links[0].end]
    ending = row.text[len(row.text.rstrip("\r\n")) :]
    if head.count("**") % 2:
        head += "**"
    text = shorten_text(hook, max(HOOK - len(head) - len(" — "), SHORTEST_HOOK))
    for mark in ("**", "`"):  # marks that lost their other half in the cut go
        if text.count(mark) % 2:
            text = text.replace(mark, "")
    return f"{head} — {text}{ending}"


def _kept(files: StagedFiles, topic: Topic, hook: str) -> bool:
    try:
        save_hook(files, topic.file, hook)
    except Refused:  # a file that cannot be changed
        return False
    return True


def _fitted(files: StagedFiles, known: frozenset[str]) -> list[str]:
    """Missing lines in, dead ones out, and as many of the newest as there is room for."""
    topics = files.active()
    also = {*files.times, *known} - {topic.file for topic in topics}
    also = {file for file in also if file in files.now or file not in files.before}
    removed = [file for file in files.before if file not in files.now and is_topic(file)]
    removed += [read_topic(files.before[file], file).name for file in removed]
    names = {topic.file: topic.name for topic in topics}
    planned, absent = plan_text(drop_pointers(files.index, [*removed, *files.removed]), names, sorted(also))
    _keep_hooks_of_repeated(files, planned)
    wanted = sorted(absent, key=lambda file: (-files.times.get(file, 0.0), file))[:LINES]
    text = fit_index(
        planned,
        wanted,
        len(absent),
        recency=lambda file: files.times.get(file, 0.0),
        read=lambda file: files.topic(file) if file in files.now else None,
    )
    if not list_exceeded_limits(text):
        files.index = text
        return []
    rows = split_rows(split_unlisted(text)[0])
    gone = _oldest(files, rows)
    there = {make_file_key(topic.file): topic.file for topic in topics}
    for row in gone:
        for one in parse_pointers(row):
            if (file := there.get(make_file_key(one.file))) is not None:
                _kept(files, files.topic(file), one.hook)
    left = {row.number for row in gone}
    kept = [row for row in rows if row.number not in left]
    moved: list[IndexRow] = []
    while _is_over(kept) and (part := _section(kept)):
        numbers = {row.number for row in part}
        kept = [row for row in kept if row.number not in numbers]
        moved += part
    files.index = "".join(row.text for row in kept)
    _move_lines(files, sorted(moved, key=lambda row: row.number))
    without = [one.file for row in gone for one in parse_pointers(row)]
    done = [f"There is no room for {len(without)} lines of the oldest memories."] if without else []
    return [*done, *([f"Hand-written lines moved to {NOTES}."] if moved else [])]


def _count_over(rows: list[IndexRow]) -> tuple[int, int]:
    """Lines and characters over the limits; there is to be room for the line about what is not listed."""
    lines = sum(row.count for row in rows) - (LINES - 1)
    return lines, sum(len(row.text) for row in rows) - (CHARACTERS - UNLISTED)


def _is_over(rows: list[IndexRow]) -> bool:
    return any(over > 0 for over in _count_over(rows))


def _keep_hooks_of_repeated(files: StagedFiles, text: str) -> None:
    """A second line for one memory goes; what it says beyond the first is kept in the memory."""
    there = {make_file_key(topic.file): topic for topic in files.active()}
    left = {row.text.strip() for row in split_rows(text)}
    for row in split_rows(files.index):
        if row.pointing and row.text.strip() not in left:
            for one in parse_pointers(row):
                if (topic := there.get(make_file_key(one.file))) is not None and one.hook:
                    _kept(files, files.topic(topic.file), one.hook)


def _oldest(files: StagedFiles, rows: list[IndexRow]) -> list[IndexRow]:
    """The lines that have to go, those of the oldest memories first."""
    times = {make_file_key(file): at for file, at in files.times.items()}
    pointing = [row for row in rows if row.pointing and not row.by_name and len(row.links) == 1]
    pointing.sort(key=lambda row: (times.get(make_file_key(row.links[0].file), 0.0), row.links[0].file))
    lines, size = _count_over(rows)
    gone: list[IndexRow] = []
    for row in pointing:
        if lines <= 0 and size <= 0:
            break
        if make_file_key(row.links[0].file) != make_file_key(NOTES):
            gone.append(row)
            lines -= row.count
            size -= len(row.text)
    return gone


def _section(rows: list[IndexRow]) -> list[IndexRow]:
    """The last hand-written section, whole; without sections the last hand-written line."""
    starts = [at for at, row in enumerate(rows) if _HEADING.match(row.text)]
    for start, end in reversed(list(zip(starts, [*starts[1:], len(rows)], strict=True))):
        part = rows[start:end]
        if not any(row.pointing for row in part) and any(row.text.strip() for row in part[1:]):
            return part
    by_hand = [row for row in rows if not row.pointing and row.text.strip()]
    plain = [row for row in by_hand if not _HEADING.match(row.text)] or by_hand
    return plain[-1:]


def _move_lines(files: StagedFiles, rows: list[IndexRow]) -> None:
    if not rows:
        return
    lines = "".join(row.text if row.text.endswith("\n") else row.text + "\n" for row in rows)
    if NOTES in files.now:
        topic = files.topic(NOTES)
        files.put(NOTES, change_topic(topic, body=f"{topic.body.rstrip()}\n{lines}"))
        return
    about = f"What was written by hand in {INDEX} and was too long for it"
    name = NOTES.removesuffix(".md")
    data = encode_new_topic(NOTES, name=name, description=about, type="reference", body=lines)
    files.put(NOTES, data, max(files.times.values(), default=0.0))


def _summary(before: str, after: str) -> list[str]:
    old = {make_file_key(link.file): link.file for row in split_rows(before) for link in row.links}
    new = {make_file_key(link.file): link.file for row in split_rows(after) for link in row.links}
    gone = [old[one] for one in old if one not in new]
    fresh = [new[one] for one in new if one not in old]
    said = [f"No line points to {_some(gone)} any more."] if gone else []
    return [*said, f"There is a line for {_some(fresh)} now."] if fresh else said


def _some(files: list[str]) -> str:
    more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
    return ", ".join(files[:_NAMED]) + more


PAST: Final = 90  # Days after its deadline when a project is over
UNCHANGED: Final = 180  # Days without a change after which a project that calls itself done is over
_SHORT: Final = 6  # Sentences of a memory that is about its deadline; a longer one says more than that
_DUE: Final = re.compile(
    r"\b(?:deadline|due|freezes?|launch(?:es)?|expires?|scheduled|demo|meeting|conference|milestone"
    r"|cut-?off|(?:by|until|till|before|ends?|ends\s+on|begins|starts|ships(?:\s+on)?|releases?\s+on)\s*$)"
    r"|截止|到期|期限|上线|冻结|评审|会议",
    re.IGNORECASE,
)
_DECIDED: Final = re.compile(
    r"\b(?:decid\w+|decisions?|chose|chosen|agreed|policy|always|never)\b|决定|约定|总是", re.IGNORECASE
)
"""A decision holds after its day."""
_OVER: Final = re.compile(
    r"\b(?:superseded\s+by|obsolete\b|no\s+longer\s+relevant)"
    r"|^\W*(?:(?:status|state)\W+)?(?:done|closed|completed?|cancell?ed|shipped|abandoned)\b\W*(?:$|[:.—–-])"
    r"|已完成|已取消|已作废|已过期|不再相关",
    re.IGNORECASE | re.MULTILINE,
)


def archive_finished(files: StagedFiles, now: float) -> list[ArchivedMemory]:
    """Move what is over; each move with its reason."""
    done: list[ArchivedMemory] = []
    moves: list[MemoryMove] = []
    for topic in files.workable():
        why = _why_over(topic, files.times.get(topic.file, now), now)
        place = f"{ARCHIVE}{topic.file}"
        if not why or make_file_key(place) in files.taken or explain_bad_file(place):
            continue
        reason = f"Archived on {format_day(now)}: {why}."
        data = change_topic(topic, body=append_paragraph(topic.body, reason))
        files.drop(topic.file)
        files.put(place, data, files.times.get(topic.file))
        moves.append(MemoryMove(topic, read_topic(data, place)))
        done.append(ArchivedMemory(topic.file, place, why))
    relink_files(files, moves)
    return done


def _why_over(topic: Topic, modified: float, now: float) -> str:
    if topic.type != "project":
        return ""
    text = f"{read_description(topic)}\n{topic.body}"
    days = [day.date for day in find_dates(text)]
    if days and not list_relative_dates(text):
        last = max(days)
        brief = len(read_sentences(topic)) <= _SHORT and not _DECIDED.search(text)
        if now - find_noon(last) > PAST * DAY and brief and _is_due(text):
            return f"its last date, {last.isoformat()}, was more than {PAST} days ago"
    since = now - max([modified, *(find_noon(day) for day in days)])
    if since > UNCHANGED * DAY and _OVER.search(text):
        return f"it says that it is over, and has not changed for more than {UNCHANGED} days"
    return ""


def _is_due(text: str) -> bool:
    """True if one of the dates is a deadline or an appointment and not that of a decision."""
    for day in find_dates(text):
        start = max(text.rfind("\n", 0, day.start), text.rfind(". ", 0, day.start)) + 1
        end = text.find("\n", day.end)
        behind = text[day.end : end if end >= 0 else len(text)]
        if _DUE.search(text[start : day.start]) or re.match(r"[\s日号]*(?:截止|到期|之?前)", behind):
            return True
    return False


_NOTE: Final = re.compile(r"- (?:(\d{2}):(\d{2}) )?(.*\S)")
_NOON: Final = "12", "00"  # The time of a note that does not say when it was made


class NoteLesson(Protocol):
    """Something that is worth remembering, as whoever reads a note makes it of it."""

    @property
    def type(self) -> Type: ...
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def body(self) -> str: ...


Learn: TypeAlias = Callable[[str, float], Sequence[NoteLesson]]
"""Gives the lessons of a note that was made at this time."""


def distil_logs(files: StagedFiles, logs: Iterable[str], learn: Learn) -> list[LoggedMemory]:
    """Make memories of the notes in these logs, unless the folder says it already."""
    done: list[LoggedMemory] = []
    known = StatementIndex({topic.file: topic.data for topic in files.active()})
    fresh: dict[str, bytes] = {}
    names = {make_file_key(topic.name) for topic in files.active()}
    for log in sorted(set(logs)):
        day = parse_log_day(log)
        if not day or log not in files.now:
            continue
        for text, at in parse_log_notes(files.now[log].decode("utf-8", "replace"), day):
            for lesson in learn(text, at):
                made = _memory(lesson, day, names, files.taken)
                if made is None:
                    continue
                file, data = made
                mine = StatementIndex(fresh)
                said = read_facts(data, file)
                if all(known.holder(one) or mine.holder(one) for one in said):
                    continue
                fresh[file] = data
                names.add(make_file_key(lesson.name))
                files.put(file, data, at)
                done.append(LoggedMemory(file, log))
    return done


def parse_log_notes(text: str, day: str) -> Iterator[tuple[str, float]]:
    """The notes of a log with their times; a line that is indented belongs to the note above it."""
    date = datetime.date.fromisoformat(day)
    note: list[str] = []
    at = 0.0
    for line in text.splitlines():
        found = _NOTE.fullmatch(line.rstrip())
        if found is None:
            if note and line.startswith("  "):
                note.append(line.strip())
            continue
        if note:
            yield "\n".join(note), at
        note = [found[3]]
        said = (found[1], found[2]) if found[1] else _NOON
        hour, minute = min(int(said[0]), 23), min(int(said[1]), 59)
        at = datetime.datetime.combine(date, datetime.time(hour, minute)).timestamp()
    if note:
        yield "\n".join(note), at


def _memory(lesson: NoteLesson, day: str, names: set[str], taken: set[str]) -> tuple[str, bytes] | None:
    """The file of a lesson; one whose name is in use gets the day behind it."""
    name = lesson.name if make_file_key(lesson.name) not in names else f"{lesson.name} {day}"
    if lesson.type not in TYPES or explain_bad_name(name) or not lesson.body.strip():
        return None
    file, origin, about = choose_file(name, taken), Origin(date=day, author="dream"), lesson.description
    return file, encode_new_topic(
        file, name=name, description=about, type=lesson.type, body=lesson.body, origin=origin
    )
