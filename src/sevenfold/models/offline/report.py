"""How the offline engine says what a tool has found: how much, how it begins, what went wrong."""

from __future__ import annotations

import re
from typing import Final

from sevenfold.messages import ToolUse
from sevenfold.models.offline.arrivals import answer_of, is_behind
from sevenfold.models.offline.handing import AGENT
from sevenfold.models.offline.phrases import PHRASES, Language, joined, say
from sevenfold.models.offline.plan import named
from sevenfold.models.offline.view import Done

MOST_REPORTS: Final = 12
MOST_LINES: Final = 8
WIDEST: Final = 160
LONGEST_PATH: Final = 4_096
REASON: Final = 300
PAGE_NOTES: Final = 1_000
"""Characters at the end of what was read among which the tool says how much it left out."""

_NUMBERED = re.compile(r"^ *\d+(?:\t|→|\| ?)", re.MULTILINE)
_FOUND = re.compile(r"\d+[:-] ?")
_NOTE = re.compile(r"\[.*\]|--|")
_PAGE = re.compile(r"^\[lines [\d,]+-[\d,]+ of (?:more than )?[\d,]+", re.MULTILINE)
_MEMORY = re.compile(r"---\nname: |# \d{4}-\d{2}-\d{2}\n")
"""How a memory begins, and how the log of a day does."""
_EXIT = re.compile(r"\bexit(?:ed)?(?:\s+with)?(?:\s+(?:code|status))?\s*[:=]?\s*(\d{1,3})\b", re.I)


def shown_text(done: Done) -> str:
    """What a tool has shown: lines of a file without numbers, found lines each with its file."""
    text = done.result.text if done.result else ""
    if done.use.name == "Read":
        return _NUMBERED.sub("", text)
    return _with_paths(text) if done.use.name == "Grep" else text


def _with_paths(text: str) -> str:
    """Found lines under the name of their file become lines that begin with it."""
    lines: list[str] = []
    name, told = "", True
    for line in [*text.split("\n"), ""]:
        if name and _FOUND.match(line):
            lines.append(f"{name}:{line}")
            told = True
            continue
        if not told:
            lines.append(name)  # nothing was under it: it is what was found
        told = not line or bool(_NOTE.fullmatch(line))
        if told:
            lines.append(line)
        else:
            name = line
    return "\n".join(lines[:-1])


def report(language: Language, done: Done, *, brief: bool = False) -> str:
    if done.result is None:
        return say(language, "unanswered", what=named(done.use))
    if done.failed:
        return _failure(language, done)
    if done.use.name == AGENT:
        return _agent(language, done, brief=brief)
    lines = [line.rstrip() for line in shown_text(done).split("\n")]
    told = [line for line in lines if line and not _NOTE.fullmatch(line)]
    count = len(_NUMBERED.findall(done.result.text)) if done.use.name == "Read" else len(told)
    count = count or len(told)
    phrase = f"done_{done.use.name}" if f"done_{done.use.name}" in PHRASES else "done"
    if _is_memory(done.use):
        phrase = "done_memory"
    elif _is_forgotten(done):
        phrase = "done_forgotten"
    elif done.use.name == "Bash" and not told:
        phrase = "done_Bash_silent"
    elif done.use.name in ("Grep", "Glob") and _is_nothing(told):
        return _nothing(language, done.use, told, lines)
    size = _size(language, done, count)
    head = say(language, phrase, what=_object(done.use), lines=size)
    if brief or not told or done.use.name in ("Write", "Edit"):
        return head
    return f"{head}\n\n{_excerpt(lines)}"


def _agent(language: Language, done: Done, *, brief: bool) -> str:
    """What an agent said, as it said it: these are words already, and no output."""
    phrase = "begun_Agent" if is_behind(done) else "done_Agent"
    head = say(language, phrase, what=_object(done.use))
    return head if brief else f"{head}\n\n{answer_of(done)}"


def _is_memory(use: ToolUse) -> bool:
    """Whether a memory was written: a markdown file that begins with its name."""
    path, content = str(use.input.get("file_path")), str(use.input.get("content"))
    return use.name == "Write" and path.endswith(".md") and bool(_MEMORY.match(content))


def _is_forgotten(done: Done) -> bool:
    """Whether an empty file was written where a memory was."""
    told = done.result.text if done.result else ""
    return done.use.name == "Write" and not done.use.input.get("content") and told[:8] == "Removed "


def _is_nothing(told: list[str]) -> bool:
    return not told or (len(told) == 1 and told[0].startswith("No "))


def _nothing(language: Language, use: ToolUse, told: list[str], lines: list[str]) -> str:
    """What was looked for in vain, and what the tool adds about where it did not look."""
    notes = [line for line in lines if line.startswith("[")]
    names_it = language == "en" and told and str(use.input.get("pattern")) in told[0]
    head = told[0] if names_it else say(language, "no_matches", what=_object(use))
    return "\n".join([head, *notes])


def _size(language: Language, done: Done, count: int) -> str:
    """How many lines; of a page of a file also how many there are."""
    text = done.result.text if done.result and done.use.name == "Read" else ""
    page = _PAGE.search(text, max(0, len(text) - PAGE_NOTES))
    if page is None:
        return how_many(language, count)
    whole = page[0].partition(" of ")[2]
    return say(language, "some_of_lines", n=f"{count:,}", all=whole)


def piped_report(language: Language, text: str) -> str:
    """What was piped in: how much, and how it begins."""
    lines = [line.rstrip() for line in text.split("\n")]
    head = say(language, "piped", lines=how_many(language, len(lines)))
    return f"{head}\n\n{_excerpt(lines)}"


def reports(language: Language, done: tuple[Done, ...], *, brief: bool) -> list[str]:
    said = [report(language, each, brief=brief) for each in done[:MOST_REPORTS]]
    if len(done) > MOST_REPORTS:
        said.append(say(language, "more_calls", n=len(done) - MOST_REPORTS))
    return said


def how_many(language: Language, lines: int) -> str:
    return say(language, "one_line") if lines == 1 else say(language, "some_lines", n=f"{lines:,}")


def doing(language: Language, uses: tuple[ToolUse, ...]) -> str:
    """What is being done now; calls of the same tool are said together."""
    together: dict[str, list[str]] = {}
    for use in uses[:MOST_REPORTS]:
        together.setdefault(use.name, []).append(_object(use))
    said = [_doing(language, name, joined(language, what)) for name, what in together.items()]
    return say(language, "doing", doing=joined(language, said))


def _doing(language: Language, name: str, what: str) -> str:
    phrase = f"doing_{name}" if f"doing_{name}" in PHRASES else "doing_other"
    return say(language, phrase, what=what)


def _object(use: ToolUse) -> str:
    """What the call is about, without the name of the tool."""
    if f"done_{use.name}" not in PHRASES:
        return named(use)
    return named(use).removeprefix(use.name).strip() or use.name


def _failure(language: Language, done: Done) -> str:
    text = done.result.text.strip() if done.result else ""
    code = _EXIT.search(text[:REASON]) or _EXIT.search(text[-REASON:])
    if done.use.name != "Bash" or not code:
        return say(language, "failed", what=named(done.use), why=_reason(text))
    rest = text.removeprefix(code[0]).strip()
    head = say(language, "failed_with", what=named(done.use), code=code[1])
    lines = [line.rstrip() for line in rest.split("\n")]
    return f"{head}\n\n{_excerpt(lines, tail=True)}" if rest else head


def _reason(text: str) -> str:
    return text if len(text) <= REASON else text[:REASON] + "…"


def _fits(line: str) -> bool:
    """A path is shown whole, however long: half of it is of no use."""
    is_path = line.startswith("/") and " " not in line and len(line) <= LONGEST_PATH
    return len(line) <= WIDEST or is_path


def _excerpt(lines: list[str], *, tail: bool = False) -> str:
    """The first lines; of what went wrong also the last, where the reason often stands."""
    if len(lines) > MOST_LINES:
        half = MOST_LINES // 2
        lines = [*lines[:half], "…", *lines[-half:]] if tail else [*lines[:MOST_LINES], "…"]
    shown = [line if _fits(line) else line[:WIDEST] + "…" for line in lines]
    ticks = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, ticks + 1)
    return "\n".join([fence, *shown, fence])
