"""Projects that are over move to the archive: recall still finds them, the index lists them no more.

Only memories of type project, and only for a reason that stands in them: a deadline long past, or the
words that it is done, in a file that has not changed for half a year. Nothing is deleted.
"""

from __future__ import annotations

import re
from typing import Final

from sevenfold.memory.age import DAY
from sevenfold.memory.consolidation.linking import Move, relink
from sevenfold.memory.consolidation.reports import Archived
from sevenfold.memory.consolidation.staged import StagedFiles
from sevenfold.memory.consolidation.statements import description, statements, with_text
from sevenfold.memory.consolidation.timing import dates_in, day_of, noon
from sevenfold.memory.dates import relative_dates
from sevenfold.memory.folder.naming import key, wrong_with_file
from sevenfold.memory.indexing import ARCHIVE
from sevenfold.memory.topic import Topic, changed, read_topic

PAST: Final = 90
"""Days after its deadline when a project is over."""
UNCHANGED: Final = 180
"""Days without a change after which a project that calls itself done is over."""
_SHORT: Final = 6
"""Sentences of a memory that is about its deadline; a longer one says more than that."""
_DUE: Final = re.compile(
    r"\b(?:deadline|due|freezes?|launch(?:es)?|expires?|scheduled|demo|meeting|conference|milestone"
    r"|cut-?off|(?:by|until|till|before|ends?|ends\s+on|begins|starts|ships(?:\s+on)?|releases?\s+on)\s*$)"
    r"|截止|到期|期限|上线|冻结|评审|会议",
    re.IGNORECASE,
)
_DECIDED: Final = re.compile(
    r"\b(?:decid\w+|decisions?|chose|chosen|agreed|policy|always|never)\b|决定|约定|总是",
    re.IGNORECASE,
)
"""What was decided holds after its day."""
_OVER: Final = re.compile(
    r"\b(?:superseded\s+by|obsolete\b|no\s+longer\s+relevant)"
    r"|^\W*(?:(?:status|state)\W+)?(?:done|closed|completed?|cancell?ed|shipped|abandoned)\b\W*(?:$|[:.—–-])"
    r"|已完成|已取消|已作废|已过期|不再相关",
    re.IGNORECASE | re.MULTILINE,
)


def archive(files: StagedFiles, now: float) -> list[Archived]:
    """Move what is over; each move with its reason."""
    done: list[Archived] = []
    moves: list[Move] = []
    for topic in files.workable():
        why = _why_over(topic, files.times.get(topic.file, now), now)
        place = f"{ARCHIVE}{topic.file}"
        if not why or key(place) in files.taken or wrong_with_file(place):
            continue
        reason = f"Archived on {day_of(now)}: {why}."
        data = changed(topic, body=with_text(topic.body, reason))
        files.drop(topic.file)
        files.put(place, data, files.times.get(topic.file))
        moves.append(Move(topic, read_topic(data, place)))
        done.append(Archived(topic.file, place, why))
    relink(files, moves)
    return done


def _why_over(topic: Topic, modified: float, now: float) -> str:
    if topic.type != "project":
        return ""
    text = f"{description(topic)}\n{topic.body}"
    days = [day.date for day in dates_in(text)]
    if days and not relative_dates(text):
        last = max(days)
        past = now - noon(last)
        brief = len(statements(topic)) <= _SHORT and not _DECIDED.search(text)
        if past > PAST * DAY and brief and _is_due(text):
            return f"its last date, {last.isoformat()}, was more than {PAST} days ago"
    since = now - max([modified, *(noon(day) for day in days)])
    if since > UNCHANGED * DAY and _OVER.search(text):
        return f"it says that it is over, and has not changed for more than {UNCHANGED} days"
    return ""


def _is_due(text: str) -> bool:
    """Whether one of the dates is a deadline or an appointment and not that of a decision."""
    for day in dates_in(text):
        start = max(text.rfind("\n", 0, day.start), text.rfind(". ", 0, day.start)) + 1
        end = text.find("\n", day.end)
        behind = text[day.end : end if end >= 0 else len(text)]
        if _DUE.search(text[start : day.start]) or re.match(
            r"[\s日号]*(?:截止|到期|之?前)", behind
        ):
            return True
    return False
