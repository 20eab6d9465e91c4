"""Requests the offline engine understands in English: searches, files, commands, work for other agents."""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from sevenfold.memory.text.words import CJK
from sevenfold.offline.language import ACTION, LITERAL, MARK, LexedRequest
from sevenfold.offline.steps import (
    EVERYONE,
    FORK,
    GENERAL,
    IT,
    TOGETHER,
    AgentOffer,
    AgentTask,
    ForgetStep,
    MessageStep,
    PlanStep,
    QuestionStep,
    RememberStep,
    StepBuilder,
    UnclearStep,
    compile_rules,
    extract_content,
    extract_work,
    find_commands,
    find_file,
    find_files,
    is_file_name,
    make_call_step,
    make_kind_glob,
    make_lines_window,
    make_reads,
    make_search_pattern,
    trim_punctuation,
    widen_pattern,
)

_EVERYWHERE = re.compile(
    r"(?:(?:the|this|my|our|all|whole|entire|current)\s+)*(?:project|repo(?:sitory)?|code\s?base|code"
    r"|files?|workspace|folder|directory|here|tree)",
    re.I,
)
_FILES_OF_A_KIND = re.compile(rf"(?:(?:all|the)\s+)*(?P<kind>{LITERAL}|\S+)\s+files", re.I)
_WHERE = re.compile(r"\s+(?:in|inside|within|under|across|from)\s+(?=\S)", re.I)
_OCCURRENCES = re.compile(
    r"(?:(?:all|every|the|any)\s+)*(?:(?:occurrences?|uses?|usages?|mentions?|references?|lines?|matches"
    r"|places?)\s+(?:of|to|with|for|containing|matching|(?:that|which|where)\s+(?:contain|mention|use)s?)\s+)?"
    r"(?:(?:the\s+)?(?:word|text|string|phrase|pattern|symbol|function|class|term)\s+)?(?=\S)",
    re.I,
)
_ELSEWHERE = re.compile(r"(?:the\s+)?(?:web|internet)|online|google", re.I)
_NO_SEARCH = re.compile(
    r"(?:out|me|how|why|what|when|who|where|(?:the\s+)?(?:web|internet)|online)\b", re.I
)


def parse_folder(where: str | None, lexed: LexedRequest) -> str | None:
    """The folder or file that was named; None: everywhere."""
    if not where or _EVERYWHERE.fullmatch(trim_punctuation(where)):
        return None
    part = re.sub(r"^the\s+|\s+(?:folder|directory|dir|file)$", "", trim_punctuation(where), flags=re.I)
    part = re.sub(r"^(?:folder|directory|dir|file)\s+", "", part, flags=re.I)
    return find_file(part, lexed, loosely=True)


def parse_search(rest: str, lexed: LexedRequest) -> tuple[str, dict[str, str]]:
    """The text to look for, and the place: the last "in" that a place follows."""
    for split in reversed(list(_WHERE.finditer(rest))):
        what, where = rest[: split.start()], trim_punctuation(rest[split.end() :])
        kinds = _FILES_OF_A_KIND.fullmatch(where)
        if kinds and (pattern := make_kind_glob(lexed.value(kinds["kind"]))):
            return what, {"glob": pattern}
        if _EVERYWHERE.fullmatch(where):
            return what, {}
        if place := parse_folder(where, lexed):
            return what, {"path": place}
    return rest, {}


def _list(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    """Files of a kind, in a folder or everywhere."""
    kind = m.groupdict().get("kind")
    pattern = make_kind_glob(lexed.value(trim_punctuation(kind))) if kind else "*"
    if pattern is None:
        return None
    wide = kind or re.search(r"\b(?:all|every)\b", m[0], re.I)
    where = parse_folder(m.groupdict().get("where"), lexed)
    return make_call_step("Glob", pattern=widen_pattern(pattern) if wide else pattern, path=where)


def _named(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    name = lexed.value(trim_punctuation(m["name"]))
    if m.groupdict().get("ending"):
        name = f"*{name}" if name.startswith((".", "*")) else f"*.{name}"
    return make_call_step("Glob", pattern=widen_pattern(name), path=parse_folder(m["where"], lexed))


def _find(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    said, scope = parse_search(m["rest"].strip(), lexed)
    if _NO_SEARCH.match(said):
        return None
    said = trim_punctuation(said)
    if lexed.alone(said) is None and (pattern := _files_wanted(said, lexed)):
        return make_call_step("Glob", pattern=widen_pattern(pattern), path=scope.get("path"))
    return make_call_step("Grep", pattern=make_pattern(said, lexed), output_mode="content", **scope)


def _files_wanted(said: str, lexed: LexedRequest) -> str | None:
    """The file pattern, where files are looked for and not words in them."""
    if named := re.fullmatch(r"(?:the\s+)?files?\s+(?:named\s+|called\s+)?(\S+)", said, re.I):
        return lexed.value(named[1])
    if pattern := re.fullmatch(r"(?:all\s+)?([^\s*]*\*\S*)(?:\s+files)?", said, re.I):
        return pattern[1]
    if is_file_name(said):
        return said
    kind = _FILES_OF_A_KIND.fullmatch(said)
    return make_kind_glob(lexed.value(kind["kind"])) if kind else None


_SHOUTED = r"[A-Z][A-Z0-9_]*[A-Z0-9]"
_WORD = rf"(?:{LITERAL}|(?!{MARK})[^\s,]+)"
_EITHER = re.compile(rf"{_WORD}(?:\s*,\s*{_WORD})*\s*,?\s+or\s+{_WORD}", re.I)
_BOTH = re.compile(rf"{_SHOUTED}s?(?:\s*,\s*{_SHOUTED}s?)*\s*,?\s+and\s+{_SHOUTED}s?")
_REMARKS = re.compile(r"(?<=[A-Z0-9])s?\s+(?:comments?|markers?|notes?|remarks?|tags?)$")


def make_pattern(said: str, lexed: LexedRequest) -> str:
    """The pattern for what was said: "all FIXMEs" are FIXME, "FIXME or HACK" is either."""
    said = _OCCURRENCES.sub("", trim_punctuation(said), count=1)
    if re.match(_SHOUTED, said):
        said = _REMARKS.sub("", said)
    if not (_EITHER.fullmatch(said) or _BOTH.fullmatch(said)):
        return make_search_pattern(_singular(said), lexed)
    words = re.findall(_WORD, said)
    kept = [_singular(word) for word in words if word.lower() not in ("or", "and")]
    return "|".join(make_search_pattern(word, lexed) for word in kept)


def _singular(word: str) -> str:
    """A word in capitals without the small s of its plural."""
    return word[:-1] if re.fullmatch(rf"{_SHOUTED}s", word) else word


def _find_in(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    if _ELSEWHERE.fullmatch(m["where"].strip()):
        return (UnclearStep(lexed.raw(m[0]), "no_web"),)
    pattern, path = make_pattern(m["what"], lexed), parse_folder(m["where"], lexed)
    return make_call_step("Grep", pattern=pattern, output_mode="content", path=path)


def _grep(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    rest = re.sub(r"^for\s+", "", m["rest"].strip(), flags=re.I)
    if rest.startswith("-"):
        return make_call_step("Bash", command=lexed.raw(trim_punctuation(m[0])))
    what, scope = parse_search(rest, lexed)
    words = what.split()
    if not scope and len(words) == 2 and (place := find_file(words[1], lexed, loosely=True)):
        what, scope = words[0], {"path": place}
    pattern = lexed.value(trim_punctuation(what))
    return make_call_step("Grep", pattern=pattern, output_mode="content", **scope)


def _files_with(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    what, scope = parse_search(m["rest"], lexed)
    pattern = make_pattern(what, lexed)
    return make_call_step("Grep", pattern=pattern, output_mode="files_with_matches", **scope)


_WHEREIN = r"(?:\s+(?:are\s+)?(?:in|under|inside|of|from)\s+(?P<where>\S.*?))?"
_FILES_SEARCH = r"(?:which|what|find|list|show(?:\s+me)?|get)\s+(?:me\s+)?(?:all\s+)?(?:the\s+)?files?\s+"

_SEARCH: Final[dict[str, StepBuilder]] = {
    rf"{_FILES_SEARCH}(?:that\s+|which\s+)?(?P<ending>end(?:s|ing)?\s+(?:in|with)|with\s+(?:the\s+)?ending)"
    rf"\s+(?P<name>\S+?){_WHEREIN}[.?!]*$": _named,
    rf"{_FILES_SEARCH}(?:are\s+|that\s+)?(?:match(?:es|ing)?|named|called|like)\s+(?:the\s+pattern\s+)?"
    rf"(?P<name>\S+?){_WHEREIN}[.?!]*$": _named,
    rf"{_FILES_SEARCH}(?:that\s+|which\s+)?(?:contain(?:s|ing)?|mention(?:s|ing)?|us(?:es?|ing)"
    r"|includ(?:es?|ing))\s+(?P<rest>.+)": _files_with,
    r"(?:list|show(?:\s+me)?|display|what\s+are)\s+(?:me\s+)?(?:all\s+)?(?:of\s+)?(?:the\s+|my\s+)?"
    rf"(?:(?P<kind>\S+)\s+)?(?:files|files\s+and\s+(?:folders|directories))"
    rf"(?:\s+(?:here|there))?{_WHEREIN}[.?!]*$": _list,
    r"(?:what|which)\s+(?:(?P<kind>\S+)\s+)?files\s+(?:are|do\s+(?:we|you|i)\s+have|exist)"
    rf"(?:\s+(?:here|there))?{_WHEREIN}[.?!]*$": _list,
    r"list\s+(?:all\s+)?(?P<kind>\S*\*\S*)" + _WHEREIN + r"[.?!]*$": _list,
    r"(?:list|show(?:\s+me)?)\s+(?:the\s+)?(?:(?:current|this|working)\s+)?(?:directory|folder)"
    r"(?:\s+(?P<where>\S+))?[.?!]*$": _list,
    r"list\s+(?:the\s+)?(?P<where>\S*/\S*|\.{1,2}|(?:src|docs?|tests?|lib|examples?|scripts?)(?=\W*$))"
    r"[.?!]*$": _list,
    r"glob\s+(?:for\s+)?(?P<name>\S+)" + _WHEREIN + r"[.?!]*$": _named,
    r"grep\s+(?P<rest>.+)": _grep,
    r"(?:search|look)\s+(?:through\s+|in\s+|inside\s+)?(?P<where>(?!for\b)\S+|the\s+(?:web|internet))"
    r"\s+for\s+(?P<what>.+)": _find_in,
    r"(?:find|search(?:\s+for)?|look\s+for|locate)\s+(?P<rest>.+)": _find,
}


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
"""The rest of a sentence that names neither a file nor a command begins so."""

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


def _read(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    rest, window = m["rest"], {}
    for pattern in _LINES:
        if lines := pattern.search(rest):
            window = make_lines_window(lines.groupdict().get("first") or "1", lines["last"])
            rest = rest[: lines.start()] + rest[lines.end() :]
            break
    for ahead in (r"(?:the\s+)?(?:contents?|text|source|whole)\s+of\s+", r"(?:the\s+)?files?\s+(?=\S)"):
        rest = re.sub(f"^{ahead}", "", rest.strip(), flags=re.I)
    named = find_files(re.sub(r"^the\s+(?!file)", "", rest, flags=re.I), lexed)
    if not named and m["verb"].lower() == "read" and not _NO_OBJECT.match(rest):
        named = find_files(rest, lexed, loosely=True)
    if m["verb"].lower() != "read" and named == [IT]:
        return None  # "show it" asks about what is there
    return make_reads(named, **window)


_BY_COMMAND = re.compile(
    r"(?:(?:the|my|our|this|these|all)\s+)*(?:following\s+)?(?:shell\s+)?(?:(?:unit|integration)\s+)?"
    r"(?:(?:tests?|test suite|suite|linter|build|checks?|program|it)\s*(?:with|using|via|by running|:)\s*"
    rf"|(?:script|commands?)\s*:?\s*(?={MARK})|command:?\s+(?!-))(?P<command>.+)",
    re.I,
)


def _run(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    part = re.sub(r"\s+(?:please|for me|again|now)[.!?]*$", "", m["rest"].strip(), flags=re.I)
    if background := re.search(r"\s+in (?:the )?background[.!?]*$", part, re.I):
        part = part[: background.start()]
    if told := _BY_COMMAND.match(part):
        part = told["command"]
    elif _NO_OBJECT.match(part):
        return (UnclearStep(lexed.raw(m[0]), "which_command"),)
    return tuple(
        step
        for command in find_commands(part, lexed)
        if command
        for step in make_call_step("Bash", command=command, run_in_background=bool(background) or None)
    )


def _shell_line(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    literal = lexed.alone(m[0])
    is_command = literal and literal.kind == "shell"
    return make_call_step("Bash", command=literal.inner.strip()) if literal and is_command else None


def _as_typed(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    return make_call_step("Bash", command=lexed.raw(trim_punctuation(m[0])))


_ANNOUNCED = re.compile(
    r"(?:the\s+)?(?:following|this)?\s*(?:contents?|text|lines?|code)?\s*[:：]?|(?:内容|如下)*[:：]?", re.I
)
"""Stands where a text should be, when the text itself does not follow."""


def build_write(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    """A file with text that was given word for word."""
    name = find_file(m["file"], lexed)
    if name is None:
        return None
    text = m.groupdict().get("text")
    if text and _ANNOUNCED.fullmatch(text.strip()):
        text = None
    if text is None and not re.search(r"\bempty\b|空", m[0], re.I):
        return (UnclearStep(lexed.raw(m[0]), "which_content"),)
    content = extract_content(text or "", lexed)
    if content is None:
        return (UnclearStep(lexed.raw(m[0]), "cannot_compose"),)
    return make_call_step("Write", file_path=name, content=content)


def build_edit(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    """A replacement in a file; the plan sees to it that the file was read before."""
    name = find_file(re.sub(r"^the file\s+|^文件\s*", "", m["file"].strip(), flags=re.I), lexed)
    if name is None:
        return None
    said = m.groupdict()
    every = said.get("all") or said.get("every") or m[0].lower().startswith("rename")
    return make_call_step(
        "Edit",
        file_path=name,
        old_string=lexed.value(m["old"]),
        new_string=lexed.value(trim_punctuation(m["new"])),
        replace_all=True if every else None,
    )


def build_remember(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    if m[0].rstrip().endswith(("?", "？")):
        return None
    text = lexed.raw(m["text"]).strip()
    return (RememberStep(text, lasting=bool(_LASTING.match(m[0]) and _MEANT.match(text))),)


def build_forget(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    text = lexed.raw(m["text"]).strip().rstrip(".!。！")
    if m[0].rstrip().endswith(("?", "？")) or _NO_MATTER.fullmatch(text):
        return None
    return (ForgetStep(text),)


_NO_MATTER = re.compile(
    r"(?:about )?(?:it|this|that|them|all(?: of (?:it|that))?|everything|了|它)\W*", re.I
)
"""Said a moment ago and no memory, so there is nothing to forget."""


_LASTING = re.compile(r"remember|memori[sz]e|don'?t forget|do not forget|[记别不牢]", re.I)
"""Asks for more than to be remembered: a note for a person is no memory."""
_MEANT = re.compile(
    rf"(?!(?:what|when|where|who|whom|whose|why|how|which|if|whether)\b)(?:\S+\s+\S|[{CJK}]{{4}})", re.I
)
"""A statement, as far as its beginning tells."""


def build_question(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    return (QuestionStep(lexed.raw(m.string).strip()),)


def build_inspect(m: re.Match[str], lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    """A question about one file: it is read first."""
    name = find_file(m["file"], lexed)
    if name is None or name == IT:
        return None
    return (*(make_reads([name]) or ()), QuestionStep(lexed.raw(m.string).strip()))


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

_SPOKEN: Final[dict[str, StepBuilder]] = {
    rf"{LITERAL}$": _shell_line,
    r"(?:show|give|tell|print|report|display)\b.*\b(?:outputs?|results?|outcome|findings?"
    r"|(?:it|they) (?:says?|prints?))\b": build_question,
    r"(?:summari[sz]e|describe|explain|what(?:'s|\s+is)\s+(?:in|inside)|what\s+does"
    r"|how\s+many\s+lines\s+(?:does|are(?:\s+there)?\s+in|in|has))\s+"
    r"(?:the\s+)?(?:contents?\s+of\s+)?(?:file\s+)?(?P<file>\S+)"
    r"(?:\s+file)?(?:\s+(?:say|contain|hold|have|do|mean)\b.*)?[.?!]*$": build_inspect,
    r"(?:tell|say|explain|answer|describe|summari[sz]e|report|let me know|count)\b": build_question,
    r"(?:remember|note|memori[sz]e|keep in mind|don'?t forget|do not forget"
    r"|(?:make|take)(?: a)? note)(?:\s+(?:that|of|this|the fact that))?\s*[:,]?\s+"
    r"(?P<text>.+)": build_remember,
    r"(?:forget(?:\s+(?:that|about|the fact that|everything about"
    r"|what (?:i|you) (?:said|know|saved|told you|remember) about))?"
    r"|(?:delete|erase|remove|drop|forget)\s+(?:the|your|that|any)\s+memor(?:y|ies)\s+"
    r"(?:about|of|on|that))\s+(?P<text>.+)": build_forget,
}
_FILES: Final[dict[str, StepBuilder]] = {
    rf"(?:replace|change|rename|swap)\s+{_EVERY}{_NOUN}(?P<old>.+?)\s+(?:with|to|by|into)\s+"
    r"(?P<new>.+?)(?:\s+everywhere)?\s+(?:in|inside|within)\s+(?P<file>[^\s].*)$": build_edit,
    r"(?:in|inside)\s+(?P<file>.+?)\s*,?\s+(?:please\s+)?(?:replace|change|rename|swap)\s+"
    rf"{_EVERY}{_NOUN}(?P<old>.+?)\s+(?:with|to|by|into)\s+(?P<new>.+)$": build_edit,
    r"(?:write|save|put)\s+(?:the\s+following|this)(?:\s+(?:text|content|code|lines?))?\s+"
    rf"(?:to|into|in|as)\s+(?P<file>\S+?)\s*:?\s+(?P<text>{LITERAL})$": build_write,
    r"(?:write|save|put|store)\s+(?P<text>.+)\s+(?:to|into|in|as)\s+(?:an?\s+|the\s+)?"
    r"(?:new\s+)?(?:file\s+)?(?:named\s+|called\s+)?(?P<file>\S+)$": build_write,
    r"(?:create|make|write|add)\s+(?:an?\s+|the\s+)?(?:new\s+)?(?:empty\s+)?(?:file\s+)?(?:to\s+)?"
    r"(?:named\s+|called\s+)?(?P<file>[^\s:]+?)"
    r"(?:\s*:\s*|\s*,?\s+(?:with|containing|that says|saying)\b\s*)"
    r"(?:the\s+)?(?:following\s+)?(?:contents?|text|lines?|code)?\s*:?\s*(?P<text>\S.*)$": build_write,
    r"(?:create|make|write)\s+(?:an?\s+|the\s+)?(?:new\s+)?(?:empty\s+)?(?:file\s+)?"
    r"(?:named\s+|called\s+)?(?P<file>\S+)(?:\s+(?P<text>" + LITERAL + r"))?$": build_write,
    r"(?P<verb>run|execute|launch)\s*:?\s+(?P<rest>.+)": _run,
    r"(?:ls(?:\s+\S.*)?|pwd)$": _as_typed,
    _BARE_COMMAND: _as_typed,
    r"(?P<verb>read|show|open|view|display|cat|print|look at|have a look at|check)\s+"
    r"(?:(?:me|us)\s+)?(?P<rest>.+)": _read,
}
RULES: Final = compile_rules(_SPOKEN | _SEARCH | _FILES, re.I)


_COUNTS: Final = {"two": 2, "both": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_BEHIND: Final = r"in\s+(?:the\s+)?background"
_APART: Final = r"in\s+(?:its|an?)\s+(?:own\s+|new\s+|separate\s+|isolated\s+|git\s+)*work-?tree"
_NOUN_HANDING_EN: Final = r"(?P<noun>sub-?agent|agent|teammate|fork)"
_WORD_HANDING_EN: Final = r"(?!(?:at|the|an?|of|in|on|to|for|with|and|or|look|called|named)\b)[^\s,:：]+"
_NAMED: Final = r"(?:\s*,?\s+(?:called|named)\s+(?P<name>[\w.-]*\w))?"
_ONE: Final = (
    rf"(?:an?|the|another|one|my|our|some)\s+(?P<kind>(?:{_WORD_HANDING_EN}\s+){{0,3}}?){_NOUN_HANDING_EN}"
    rf"(?=\s|[:：,]|$){_NAMED}"
)
_TO: Final = (
    rf"\s*(?P<how>(?:{_BEHIND}|{_APART}|,|and\s+(?=(?:have|let|ask|tell)\s+it\b)|please\b|\s)*)"
    r"(?P<link>[:：]|to\b|(?:(?:that|which|who)(?:\s+(?:should|will|can))?|for)\b"
    r"|(?:have|let|ask|tell)\s+it(?:\s+to)?\b)?\s*(?P<work>\S.*)"
)
_SINGLE = re.compile(
    r"(?P<verb>ask|get|have|let|tell|use|start|spawn|launch|create|make|send|task|run|put)\s+"
    rf"{_ONE}{_TO}",
    re.I,
)
_SEVERAL = re.compile(
    r"(?:in\s+parallel\s*,?\s+)?(?:(?:ask|get|have|let|use|start|spawn|launch|run|send|with|in|make)\s+)?"
    r"(?P<count>two|both|three|four|five|six|several|some|multiple|\d{1,2})\s+"
    rf"(?P<kind>(?:{_WORD_HANDING_EN}\s+){{0,3}}?)(?P<noun>sub-?agents|agents|teammates|forks)\b"
    rf"(?P<how>(?:\s+(?:{_BEHIND}|in\s+parallel|at\s+once))*)"
    r"\s*(?:(?P<link>[:：])|\bto\b)\s*(?P<work>.*)",
    re.I,
)
_FORKED = re.compile(
    r"fork\b(?:\s+(?:this|yourself|the\s+conversation|here|off|now))*"
    r"(?:\s+(?P<count>twice|(?:two|three|four|five|six|several|\d{1,2})(?:\s+times)?))?"
    rf"(?P<how>(?:\s+{_BEHIND})?)\s*(?P<link>[:：,]|\band\b|\bto\b)\s*(?P<work>\S.*)",
    re.I,
)
_AHEAD = re.compile(rf"in\s+(?:the\s+)?background(?:\s*[,:：]\s*|\s+(?={ACTION}))", re.I)
_WITH = re.compile(
    r"(?P<work>(?:run|execute|find|search|grep|look|list|glob|read|show|open|check|count|summari[sz]e"
    r"|describe|review|test|fix|investigate|explore|analy[sz]e|do)\b.+?)"
    rf"(?P<how>(?:\s+{_BEHIND})?)\s+(?:with|using|via|by|through)\s+{_ONE}(?P<after>(?:\s+{_BEHIND})?)[.!]*$",
    re.I,
)
_BEHIND_AT_END = re.compile(rf"\s*,?\s+{_BEHIND}[.!]*$", re.I)
_APART_AT_END = re.compile(rf"\s*,?\s+{_APART}[.!]*$", re.I)
_DOING = re.compile(rf"do\s+(?:the\s+following\s*[:：]?\s*|(?={ACTION}))", re.I)
_NOBODY: Final = re.compile(
    r"me|us|him|her|them|it|you|myself|yourself|someone|somebody|nobody|people|the|an?|my|your|our|this|that"
    r"|these|those|what|which|who|how|why|where|when|if|whether|apart|about|anything|something|agent|teammate"
)
_ALL: Final = frozenset({"everyone", "everybody", "all", "*"})
_NAME: Final = r"(?P<to>\*|[\w@][\w.:/@-]*?)"
_TELL = re.compile(
    r"(?:tell|inform|notify|message)\s+(?P<the>(?:the|my)\s+)?"
    rf"{_NAME}(?P<noun>\s+(?:agents?|teammates?|of\s+(?:them|you)))?"
    r"(?:\s*[:：,]\s+|\s+that\s+|\s+to\s+)(?P<text>\S.*)",
    re.I,
)
_SEND = re.compile(
    r"(?:send\s+(?:(?:(?:a\s+)?(?:message|note|letter)\s+)?to\s+)?|write\s+a\s+(?:message|letter)\s+to\s+)"
    r"(?P<the>the\s+)?"
    rf"{_NAME}(?P<noun>\s+(?:agents?|teammates?))?(?:\s+(?:a|the|this)\s+(?:message|note))?"
    r"\s*[:：]\s+(?P<text>\S.*)",
    re.I,
)
_LET_KNOW = re.compile(
    rf"let\s+(?P<the>the\s+)?{_NAME}(?P<noun>\s+(?:agents?|teammates?))?\s+know\s+"
    r"(?:that\s+|[:：]\s*)?(?P<text>\S.*)",
    re.I,
)
_ASK = re.compile(
    r"(?:ask|have|get)\s+(?:the\s+)?(?P<to>[\w.:-]*\w)(?:\s+(?P<link>to)\b|\s*[:：])?\s+(?P<text>\S.*)",
    re.I,
)


def parse_handover(
    piece: str, lexed: LexedRequest, offer: AgentOffer
) -> list[AgentTask] | MessageStep | None:
    """The work that this sentence gives to others, if any. A list without work announces what follows."""
    said = piece.strip()
    if ahead := POLITE.match(said):
        said = said[ahead.end() :]
    if said.endswith(("?", "？")):
        return None
    background = _AHEAD.match(said)
    said = said[background.end() :] if background else said
    if not background and (sent := _sent(said, lexed, offer)):
        return sent
    if not offer.agents:
        return None
    found = _work(said, lexed, offer)
    if found is None and background:
        found = [_handed(said, lexed)]
    return [replace(one, background=True) for one in found] if found and background else found


def _work(said: str, lexed: LexedRequest, offer: AgentOffer) -> list[AgentTask] | None:
    if m := _SEVERAL.match(said):
        return _several(m, lexed, offer)
    if m := _FORKED.match(said):
        return _forked(m, lexed)
    if m := _SINGLE.match(said):
        return _single(m, lexed, offer)
    if m := _WITH.match(said):
        background = bool(m["how"] or m["after"])
        return [_of_kind(_handed(m["work"], lexed), m, lexed, offer, background)]
    if (m := _ASK.match(said)) and (kind := offer.kind(m["to"])) not in (None, FORK):
        linked = m["link"] or said.lower().startswith("have")
        return [_handed(m["text"], lexed, kind=str(kind))] if linked else None
    return None


def _single(m: re.Match[str], lexed: LexedRequest, offer: AgentOffer) -> list[AgentTask] | None:
    verb = m["verb"].lower()
    plainly = m["link"] or re.search(r",|background|tree", m["how"], re.I)
    if not plainly and verb not in ("have", "let"):
        return None
    if verb == "let" and m["work"].lower().startswith("know "):
        return None
    if verb == "tell" and re.match(r"tell\s+(?:the|my|our)\b", m[0], re.I):
        return None  # one that is there: it gets a message, or nothing
    handed = _of_kind(_handed(m["work"], lexed), m, lexed, offer, bool(re.search("back", m["how"])))
    return [replace(handed, worktree=handed.worktree or "tree" in m["how"].lower())]


def _of_kind(
    handed: AgentTask, m: re.Match[str], lexed: LexedRequest, offer: AgentOffer, background: bool
) -> AgentTask:
    """With what stands before and behind the word `agent`."""
    words, noun = lexed.raw(m["kind"] or ""), m["noun"].lower()
    kind = FORK if noun.startswith(FORK) else offer.kind(words) or GENERAL
    return replace(
        handed,
        kind=kind,
        name=m.groupdict().get("name"),
        background=handed.background or background or "background" in words.lower().split(),
        teammate=noun.startswith("teammate"),
    )


def _several(m: re.Match[str], lexed: LexedRequest, offer: AgentOffer) -> list[AgentTask] | None:
    """One for each part between semicolons; a single part is given to each of them."""
    parts = [part for part in re.split(r"[;；]", m["work"]) if part.strip(" .")]
    if not parts:
        return [] if m["link"] else None
    count = m["count"].lower()
    many = _COUNTS.get(count) or (int(count) if count.isdigit() else 2)
    parts = parts * min(many, TOGETHER) if len(parts) == 1 else parts
    behind = bool(re.search("back", m["how"], re.I))
    return [_of_kind(_handed(part, lexed), m, lexed, offer, behind) for part in parts]


def _forked(m: re.Match[str], lexed: LexedRequest) -> list[AgentTask]:
    parts = [m["work"]]
    if m["count"]:
        parts = [part for part in re.split(r"[;；]", m["work"]) if part.strip(" .")]
    handed = [_handed(part, lexed, kind=FORK) for part in parts]
    return [replace(one, background=one.background or bool(m["how"])) for one in handed]


def _handed(part: str, lexed: LexedRequest, kind: str = GENERAL) -> AgentTask:
    """The work itself; where it says at its end how it is to be done, that is taken off."""
    background, worktree, size = False, False, -1
    while len(part) != size:
        size = len(part)
        if at_end := _BEHIND_AT_END.search(part):
            part, background = part[: at_end.start()], True
        if at_end := _APART_AT_END.search(part):
            part, worktree = part[: at_end.start()], True
        part = re.sub(r"\s+(?:please|for me)[.!]*$", "", part, flags=re.I)
    part = _DOING.sub("", part.strip(), count=1)
    return AgentTask(extract_work(part, lexed), kind, background=background, worktree=worktree)


def _sent(said: str, lexed: LexedRequest, offer: AgentOffer) -> MessageStep | None:
    if not offer.messages:
        return None
    for pattern in (_TELL, _SEND, _LET_KNOW):
        if (m := pattern.match(said)) and (to := _addressed(m, offer)):
            return MessageStep(to, extract_work(m["text"], lexed))
    if (m := _ASK.match(said)) and (name := offer.name(m["to"])):
        return MessageStep(name, extract_work(m["text"], lexed))
    return None


def _addressed(m: re.Match[str], offer: AgentOffer) -> str | None:
    """The agent that is meant; with an article only one that is known, or called an agent."""
    to, noun = m["to"], m["noun"]
    if to.lower() in _ALL or (m["the"] and to.lower() in ("team", "others", "teammates", "agents")):
        return EVERYONE
    if _NOBODY.fullmatch(to.lower()):
        return None
    return offer.name(to) or (to if noun or not m["the"] else None)
