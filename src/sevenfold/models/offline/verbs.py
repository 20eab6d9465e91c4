"""What the offline engine understands in English: one rule a line of the table at the end."""

from __future__ import annotations

import re
from typing import Final

from sevenfold.models.offline.lexing import LITERAL, MARK, Lexed
from sevenfold.models.offline.search import SEARCH_RULES
from sevenfold.models.offline.steps import (
    IT,
    Forget,
    Keep,
    Question,
    Rule,
    Step,
    Unclear,
    commands,
    content_given,
    file_named,
    files_named,
    lines_window,
    one,
    reads,
    trimmed,
)
from sevenfold.models.offline.words import CJK

POLITE: Final = re.compile(
    r"(?:(?:please|pls|ok(?:ay)?|hey|hi|hello|now|first(?:ly)?|second(?:ly)?|finally|also|next|then"
    r"|and|so|just|kindly|quickly|go ahead and|(?:can|could|would|will) you|can we|let'?s|let us"
    r"|i (?:want|need|would like) you to|i'd like you to|you should|try to|help me(?: to)?)\b[\s,:!]*)+",
    re.I,
)

_NO_OBJECT = re.compile(
    r"(?:the|an?|my|your|our|his|her|their|its|all|some|it|this|that|these|those|through|into|out|away"
    r"|over|on|up|between|more|me|tests?|everything|again)\b(?!\s*[./=-])",
    re.I,
)
"""How the rest of a sentence begins that names neither a file nor a command."""

_LINES: Final = (
    re.compile(
        r"^(?:the\s+)?lines?\s+(?P<first>\d+)\s*(?:-|–|to|through|until)\s*(?P<last>\d+)"
        r"\s+(?:of|in|from)\s",
        re.I,
    ),
    re.compile(r"^(?:the\s+)?(?:first|top)\s+(?P<last>\d+)\s+lines\s+(?:of|in|from)\s", re.I),
    re.compile(
        r",?\s+(?:from\s+)?lines?\s+(?P<first>\d+)\s*(?:-|–|to|through|until)\s*(?P<last>\d+)", re.I
    ),
)


def _read(m: re.Match[str], lexed: Lexed) -> tuple[Step, ...] | None:
    rest, window = m["rest"], {}
    for pattern in _LINES:
        if lines := pattern.search(rest):
            window = lines_window(lines.groupdict().get("first") or "1", lines["last"])
            rest = rest[: lines.start()] + rest[lines.end() :]
            break
    for ahead in (
        r"(?:the\s+)?(?:contents?|text|source|whole)\s+of\s+",
        r"(?:the\s+)?files?\s+(?=\S)",
    ):
        rest = re.sub(f"^{ahead}", "", rest.strip(), flags=re.I)
    named = files_named(re.sub(r"^the\s+(?!file)", "", rest, flags=re.I), lexed)
    if not named and m["verb"].lower() == "read" and not _NO_OBJECT.match(rest):
        named = files_named(rest, lexed, loosely=True)
    if m["verb"].lower() != "read" and named == [IT]:
        return None  # "show it" asks about what is there
    return reads(named, **window)


_BY_COMMAND = re.compile(
    r"(?:(?:the|my|our|this|these|all)\s+)*(?:following\s+)?(?:shell\s+)?(?:(?:unit|integration)\s+)?"
    r"(?:(?:tests?|test suite|suite|linter|build|checks?|program|it)\s*(?:with|using|via|by running|:)\s*"
    rf"|(?:script|commands?)\s*:?\s*(?={MARK})|command:?\s+(?!-))(?P<command>.+)",
    re.I,
)


def _run(m: re.Match[str], lexed: Lexed) -> tuple[Step, ...] | None:
    part = re.sub(r"\s+(?:please|for me|again|now)[.!?]*$", "", m["rest"].strip(), flags=re.I)
    background = re.search(r"\s+in (?:the )?background[.!?]*$", part, re.I)
    if background:
        part = part[: background.start()]
    if told := _BY_COMMAND.match(part):
        part = told["command"]
    elif _NO_OBJECT.match(part):
        return (Unclear(lexed.raw(m[0]), "which_command"),)
    return tuple(
        step
        for command in commands(part, lexed)
        if command
        for step in one("Bash", command=command, run_in_background=bool(background) or None)
    )


def _shell_line(m: re.Match[str], lexed: Lexed) -> tuple[Step, ...] | None:
    literal = lexed.alone(m[0])
    if literal is None or literal.kind != "shell":
        return None
    return one("Bash", command=literal.inner.strip())


def _as_typed(m: re.Match[str], lexed: Lexed) -> tuple[Step, ...] | None:
    return one("Bash", command=lexed.raw(trimmed(m[0])))


_ANNOUNCED = re.compile(
    r"(?:the\s+)?(?:following|this)?\s*(?:contents?|text|lines?|code)?\s*[:：]?|(?:内容|如下)*[:：]?",
    re.I,
)
"""What stands where a text should be, when the text itself does not follow."""


def write(m: re.Match[str], lexed: Lexed) -> tuple[Step, ...] | None:
    """A file with text that was given word for word."""
    name = file_named(m["file"], lexed)
    if name is None:
        return None
    text = m.groupdict().get("text")
    if text and _ANNOUNCED.fullmatch(text.strip()):
        text = None
    if text is None and not re.search(r"\bempty\b|空", m[0], re.I):
        return (Unclear(lexed.raw(m[0]), "which_content"),)
    content = content_given(text or "", lexed)
    if content is None:
        return (Unclear(lexed.raw(m[0]), "cannot_compose"),)
    return one("Write", file_path=name, content=content)


def edit(m: re.Match[str], lexed: Lexed) -> tuple[Step, ...] | None:
    """A replacement in a file; the plan sees to it that the file was read before."""
    name = file_named(re.sub(r"^the file\s+|^文件\s*", "", m["file"].strip(), flags=re.I), lexed)
    if name is None:
        return None
    said = m.groupdict()
    every = said.get("all") or said.get("every") or m[0].lower().startswith("rename")
    return one(
        "Edit",
        file_path=name,
        old_string=lexed.value(m["old"]),
        new_string=lexed.value(trimmed(m["new"])),
        replace_all=True if every else None,
    )


def keep(m: re.Match[str], lexed: Lexed) -> tuple[Step, ...] | None:
    if m[0].rstrip().endswith(("?", "？")):
        return None
    text = lexed.raw(m["text"]).strip()
    return (Keep(text, lasting=bool(_LASTING.match(m[0]) and _MEANT.match(text))),)


def forget(m: re.Match[str], lexed: Lexed) -> tuple[Step, ...] | None:
    text = lexed.raw(m["text"]).strip().rstrip(".!。！")
    if m[0].rstrip().endswith(("?", "？")) or _NO_MATTER.fullmatch(text):
        return None
    return (Forget(text),)


_NO_MATTER = re.compile(
    r"(?:about )?(?:it|this|that|them|all(?: of (?:it|that))?|everything|了|它)\W*", re.I
)
"""What is to be forgotten that was said a moment ago, and is no memory."""


_LASTING = re.compile(r"remember|memori[sz]e|don'?t forget|do not forget|[记别不牢]", re.I)
"""What asks for more than to be heard: a note to somebody is no memory."""
_MEANT = re.compile(
    rf"(?!(?:what|when|where|who|whom|whose|why|how|which|if|whether)\b)(?:\S+\s+\S|[{CJK}]{{4}})",
    re.I,
)
"""A statement, as far as its beginning tells."""


def question(m: re.Match[str], lexed: Lexed) -> tuple[Step, ...] | None:
    return (Question(lexed.raw(m.string).strip()),)


def inspect(m: re.Match[str], lexed: Lexed) -> tuple[Step, ...] | None:
    """A question about one file: it is read first."""
    name = file_named(m["file"], lexed)
    if name is None or name == IT:
        return None
    return (*(reads([name]) or ()), Question(lexed.raw(m.string).strip()))


_ARGUMENT = rf"(?:-\S+|{LITERAL}|(?![-{MARK}])(?=\S*[\d./~^*])\S+(?<![.!?]))"
_BARE_COMMAND = (
    r"(?:git\s+(?:status|log|diff|branch|show|blame|remote|describe|shortlog|ls-files|rev-parse|stash\s+list)"
    rf"(?:\s+{_ARGUMENT})*(?:\s+(?:main|master|HEAD|develop)(?:\s+{_ARGUMENT})*)?"
    rf"|(?:pytest|ruff|mypy|tree|df|du|ps|wc|head|tail|stat|uname)(?:\s+{_ARGUMENT})*"
    r"|whoami|hostname|uptime|date|make(?:\s+(?:all|build|check|clean|docs|lint|test))?"
    r"|(?:npm|cargo|go|yarn|pnpm)\s+(?:test|build|check|run\s+[\w:-]+)"
    rf"(?:\s+{_ARGUMENT})*)$"
)
"""Commands that everybody knows by name; what follows must look like an argument, not like a sentence."""
_EVERY = r"(?P<all>(?:all|every|each)\s+(?:(?:occurrences?|instances?)\s+of\s+)?)?"
_NOUN = r"(?:the\s+(?:word|text|line|string|value|number|name)\s+)?"

_SPOKEN: Final[tuple[Rule, ...]] = tuple(
    (re.compile(pattern, re.I), build)
    for pattern, build in (
        (rf"{LITERAL}$", _shell_line),
        (
            r"(?:show|give|tell|print|report|display)\b.*\b(?:outputs?|results?|outcome|findings?"
            r"|(?:it|they) (?:says?|prints?))\b",
            question,
        ),
        (
            r"(?:summari[sz]e|describe|explain|what(?:'s|\s+is)\s+(?:in|inside)|what\s+does"
            r"|how\s+many\s+lines\s+(?:does|are(?:\s+there)?\s+in|in|has))\s+"
            r"(?:the\s+)?(?:contents?\s+of\s+)?(?:file\s+)?(?P<file>\S+)"
            r"(?:\s+file)?(?:\s+(?:say|contain|hold|have|do|mean)\b.*)?[.?!]*$",
            inspect,
        ),
        (r"(?:tell|say|explain|answer|describe|summari[sz]e|report|let me know|count)\b", question),
        (
            r"(?:remember|note|memori[sz]e|keep in mind|don'?t forget|do not forget"
            r"|(?:make|take)(?: a)? note)(?:\s+(?:that|of|this|the fact that))?\s*[:,]?\s+(?P<text>.+)",
            keep,
        ),
        (
            r"(?:forget(?:\s+(?:that|about|the fact that|everything about"
            r"|what (?:i|you) (?:said|know|saved|told you|remember) about))?"
            r"|(?:delete|erase|remove|drop|forget)\s+(?:the|your|that|any)\s+memor(?:y|ies)\s+"
            r"(?:about|of|on|that))\s+(?P<text>.+)",
            forget,
        ),
    )
)
_FILES: Final[tuple[Rule, ...]] = tuple(
    (re.compile(pattern, re.I), build)
    for pattern, build in (
        (
            rf"(?:replace|change|rename|swap)\s+{_EVERY}{_NOUN}(?P<old>.+?)\s+(?:with|to|by|into)\s+"
            r"(?P<new>.+?)(?:\s+everywhere)?\s+(?:in|inside|within)\s+(?P<file>[^\s].*)$",
            edit,
        ),
        (
            r"(?:in|inside)\s+(?P<file>.+?)\s*,?\s+(?:please\s+)?(?:replace|change|rename|swap)\s+"
            rf"{_EVERY}{_NOUN}(?P<old>.+?)\s+(?:with|to|by|into)\s+(?P<new>.+)$",
            edit,
        ),
        (
            r"(?:write|save|put)\s+(?:the\s+following|this)(?:\s+(?:text|content|code|lines?))?\s+"
            rf"(?:to|into|in|as)\s+(?P<file>\S+?)\s*:?\s+(?P<text>{LITERAL})$",
            write,
        ),
        (
            r"(?:write|save|put|store)\s+(?P<text>.+)\s+(?:to|into|in|as)\s+(?:an?\s+|the\s+)?"
            r"(?:new\s+)?(?:file\s+)?(?:named\s+|called\s+)?(?P<file>\S+)$",
            write,
        ),
        (
            r"(?:create|make|write|add)\s+(?:an?\s+|the\s+)?(?:new\s+)?(?:empty\s+)?(?:file\s+)?(?:to\s+)?"
            r"(?:named\s+|called\s+)?(?P<file>[^\s:]+?)"
            r"(?:\s*:\s*|\s*,?\s+(?:with|containing|that says|saying)\b\s*)"
            r"(?:the\s+)?(?:following\s+)?(?:contents?|text|lines?|code)?\s*:?\s*(?P<text>\S.*)$",
            write,
        ),
        (
            r"(?:create|make|write)\s+(?:an?\s+|the\s+)?(?:new\s+)?(?:empty\s+)?(?:file\s+)?"
            r"(?:named\s+|called\s+)?(?P<file>\S+)(?:\s+(?P<text>" + LITERAL + r"))?$",
            write,
        ),
        (r"(?P<verb>run|execute|launch)\s*:?\s+(?P<rest>.+)", _run),
        (r"(?:ls(?:\s+\S.*)?|pwd)$", _as_typed),
        (_BARE_COMMAND, _as_typed),
        (
            r"(?P<verb>read|show|open|view|display|cat|print|look at|have a look at|check)\s+"
            r"(?:(?:me|us)\s+)?(?P<rest>.+)",
            _read,
        ),
    )
)
RULES: Final[tuple[Rule, ...]] = (*_SPOKEN, *SEARCH_RULES, *_FILES)
