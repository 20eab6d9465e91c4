"""How the offline engine notes something in the daily log, where the rules of memory ask for that.

A log only grows, so what is written is what stands there and one line more. What stands there is known
from this conversation; a log that others began is read when the first write is refused for that.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Final

from sevenfold.models.offline.hearing import day_told
from sevenfold.models.offline.steps import Call, Calls
from sevenfold.models.offline.view import Conversation, Done, calls

HEADING: Final = "## Saving goes through a daily log"
"""How the rules of memory begin to say so."""
_NUMBERED: Final = re.compile(r"^ *\d+(?:\t|→|\| ?)(.*)$", re.MULTILINE)
_UNREAD: Final = "has not been read"


def keeps_diary(system: str) -> bool:
    return HEADING in system


def noted(conversation: Conversation, folder: str, text: str) -> tuple[Calls, ...]:
    """The calls that add this to the log of the day; none where nobody said which day it is."""
    days = [day for message in conversation.messages if (day := day_told(message))]
    if not days:
        return ()
    day = days[-1]
    path = str(PurePath(folder) / "logs" / day[:4] / day[5:7] / f"{day}.md")
    first, *more = text.split("\n")
    line = "".join([f"- {first}\n", *(f"  {each}\n" for each in more)])
    made = [done for done in calls(conversation) if done.use.input.get("file_path") == path]
    if written := _written(made, line):
        return (Calls((written,)),)
    new = Call("Write", {"file_path": path, "content": f"# {day}\n\n{line}"})
    if not made:
        return (Calls((new,)),)
    begun = (Calls((new,)),) if _unread(made) else ()
    look = Calls((Call("Read", {"file_path": path}),))
    there = _there(made)
    if there is None:
        return *begun, look
    after = Calls((Call("Write", {"file_path": path, "content": f"{there}{line}"}),))
    return (*begun, look, after) if begun else (after,)


def _written(made: list[Done], line: str) -> Call | None:
    """The call that has noted it already."""
    for done in reversed(made):
        content = str(done.use.input.get("content", ""))
        if done.use.name == "Write" and not _failed(done) and content.endswith(line):
            return Call("Write", dict(done.use.input))
    return None


def _unread(made: list[Done]) -> bool:
    return any(done.result and done.failed and _UNREAD in done.result.text for done in made)


def _there(made: list[Done]) -> str | None:
    """What the log says, as it was last read or written here."""
    for done in reversed(made):
        if done.result is None or done.failed:
            continue
        if done.use.name == "Write":
            return str(done.use.input.get("content", ""))
        if done.use.name == "Read":
            return "".join(f"{line}\n" for line in _NUMBERED.findall(done.result.text))
    return None


def _failed(done: Done) -> bool:
    return done.result is None or done.failed
