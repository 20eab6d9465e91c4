"""The offline engine's way to remember and to forget.

To remember, it writes one memory file with the words as they were said, a name and a type by a few signs.
The rules of memory in the system prompt name the folder; without them it cannot save. The line in the
index is written by the store.

To forget, it finds the memory by its line in the index, and writes it empty. Where the rules of memory
ask for a daily log, it notes what it is told there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Final, TypeGuard

from sevenfold.memory.folder.labels import classify_memory, make_memory_name
from sevenfold.memory.topic_file import encode_new_topic, summarise_body
from sevenfold.offline.conversation import OfflineConversation, PastCall, iterate_calls
from sevenfold.offline.language import find_terms, find_told_day
from sevenfold.offline.steps import (
    PlanStep,
    QuestionStep,
    RememberStep,
    Statement,
    ToolCallsStep,
    ToolCallStep,
    UnclearStep,
)

HEADING: Final = "## Saving goes through a daily log"  # The heading in the rules of memory that says so
_NUMBERED: Final = re.compile(r"^ *\d+(?:\t|→|\| ?)(.*)$", re.MULTILINE)
_UNREAD: Final = "has not been read"


def has_daily_log(system: str) -> bool:
    return HEADING in system


def plan_log_note(conversation: OfflineConversation, folder: str, text: str) -> tuple[ToolCallsStep, ...]:
    """The calls that add this to the log of the day; none where nobody said which day it is."""
    days = [day for message in conversation.messages if (day := find_told_day(message))]
    if not days:
        return ()
    day = days[-1]
    path = str(PurePath(folder) / "logs" / day[:4] / day[5:7] / f"{day}.md")
    first, *more = text.split("\n")
    line = "".join([f"- {first}\n", *(f"  {each}\n" for each in more)])
    made = [done for done in iterate_calls(conversation) if done.use.input.get("file_path") == path]
    if written := _written(made, line):
        return (ToolCallsStep((written,)),)
    new = ToolCallStep("Write", {"file_path": path, "content": f"# {day}\n\n{line}"})
    if not made:
        return (ToolCallsStep((new,)),)
    begun = (ToolCallsStep((new,)),) if _unread(made) else ()
    look = ToolCallsStep((ToolCallStep("Read", {"file_path": path}),))
    there = _there(made)
    if there is None:
        return *begun, look
    after = ToolCallsStep((ToolCallStep("Write", {"file_path": path, "content": f"{there}{line}"}),))
    return (*begun, look, after) if begun else (after,)


def _written(made: list[PastCall], line: str) -> ToolCallStep | None:
    """The call that has noted it already."""
    for done in reversed(made):
        content = str(done.use.input.get("content", ""))
        if done.use.name == "Write" and not _failed(done) and content.endswith(line):
            return ToolCallStep("Write", dict(done.use.input))
    return None


def _unread(made: list[PastCall]) -> bool:
    return any(done.result and done.failed and _UNREAD in done.result.text for done in made)


def _there(made: list[PastCall]) -> str | None:
    """The log as it was last read or written here."""
    for done in reversed(made):
        if done.result is None or done.failed:
            continue
        if done.use.name == "Write":
            return str(done.use.input.get("content", ""))
        if done.use.name == "Read":
            return "".join(f"{line}\n" for line in _NUMBERED.findall(done.result.text))
    return None


def _failed(done: PastCall) -> bool:
    return done.result is None or done.failed


_FOLDER: Final = re.compile(r"^# Memory\n[^\n]*?folder of markdown files, `([^`\n]+)`", re.MULTILINE)
_HEADED: Final = re.compile(r"(?:why|how to apply|reason|原因|为什么|如何应用)\s*[:：].*[^?？]", re.I)
_TO: Final = re.compile(r"to\s+", re.I)


def plan_memory_write(conversation: OfflineConversation, text: str) -> tuple[ToolCallsStep, ...]:
    """The call that writes this as a memory; none where the conversation has no place for it."""
    folder = find_memory_folder(conversation.system)
    if folder is None or "Write" not in conversation.tools:
        return ()
    if has_daily_log(conversation.system):
        return plan_log_note(conversation, folder, text)
    name, kind = make_memory_name(text), classify_memory(text)
    text = _TO.sub("", text, count=1) if _TO.match(text) else text
    file = f"{name}.md"
    data = encode_new_topic(file, name=name, description=summarise_body(text), type=kind, body=text)
    content = data.decode("utf-8", "replace")
    path = str(PurePath(folder) / file)
    write = ToolCallsStep((ToolCallStep("Write", {"file_path": path, "content": content}),))
    if not _is_there(conversation, file):
        return (write,)
    return ToolCallsStep((ToolCallStep("Read", {"file_path": path}),)), write  # nothing is replaced unseen


def _is_there(conversation: OfflineConversation, file: str) -> bool:
    """True if the index, which opens the conversation, points to such a file."""
    return any(f"({file})" in message.text for message in conversation.messages[:3])


def find_memory_folder(system: str) -> str | None:
    """The folder that the rules of memory name, if there are any."""
    found = _FOLDER.search(system)
    return found[1] if found else None


def gather_reasons(steps: Iterable[PlanStep]) -> Iterator[PlanStep]:
    """Add what is said right after "remember this": its reason, how to apply it."""
    keeping: RememberStep | None = None
    for step in steps:
        if keeping is not None and _goes_on(step):
            keeping = RememberStep(f"{keeping.text}\n{step.text}", lasting=True)
            continue
        if keeping is not None:
            yield keeping
        keeping = step if isinstance(step, RememberStep) and step.lasting else None
        if keeping is None:
            yield step
    if keeping is not None:
        yield keeping


def _goes_on(step: PlanStep) -> TypeGuard[Statement | QuestionStep | UnclearStep]:
    """A statement, or one with a heading, which looks like a question: "Why: it broke"."""
    if isinstance(step, Statement):
        return True
    return isinstance(step, QuestionStep | UnclearStep) and bool(_HEADED.fullmatch(step.text))


LEAST: Final = 0.5  # The share of the words that a memory must have to be the one that is meant
_ROW: Final = re.compile(r"^- \[(?P<title>[^\]\n]+)\]\((?P<file>[^()\n]+\.md)\)(?P<hook>[^\n]*)", re.M)
_DESCRIBED: Final = re.compile(r"^(?:name|description):[ ]*(.+)", re.M)


def plan_forget(conversation: OfflineConversation, text: str, before: int) -> tuple[PlanStep, ...]:
    """The calls that remove the memory of this, or why there are none. `before`: where it was asked."""
    folder = find_memory_folder(conversation.system)
    if folder is None or not {"Read", "Write"} <= conversation.tools.keys():
        return (UnclearStep(text, "nothing_to_forget"),)
    files = _closest(text, dict(_known(conversation, folder, before)))
    if not files:
        return (UnclearStep(text, "nothing_to_forget"),)
    if len(files) > 1:
        return (UnclearStep(", ".join(files), "which_memory"),)
    path = str(PurePath(folder) / files[0])
    return (
        ToolCallsStep((ToolCallStep("Read", {"file_path": path}),)),
        ToolCallsStep((ToolCallStep("Write", {"file_path": path, "content": ""}),)),
    )


def _closest(text: str, known: dict[str, str]) -> list[str]:
    wanted = frozenset(find_terms(text))
    if not wanted:
        return []
    shares = {file: len(wanted & {*find_terms(said)}) / len(wanted) for file, said in known.items()}
    best = max(shares.values(), default=0.0)
    return [file for file, share in shares.items() if share == best] if best >= LEAST else []


def _known(conversation: OfflineConversation, folder: str, before: int) -> Iterator[tuple[str, str]]:
    """The memories in view: those of the index that opens it, and those that were saved here."""
    for at, message in enumerate(conversation.messages[: before + 1]):
        if at in conversation.added or message.text.lstrip().startswith("<context>"):
            for row in _ROW.finditer(message.text):
                yield row["file"], f"{row['title']} {row['hook']}"
    for done in iterate_calls(conversation, 0, before):
        path = PurePath(str(done.use.input.get("file_path", "")))
        if done.use.name == "Write" and not done.failed and path.is_relative_to(folder):
            said = " ".join(_DESCRIBED.findall(str(done.use.input.get("content", ""))))
            yield path.relative_to(folder).as_posix(), said
