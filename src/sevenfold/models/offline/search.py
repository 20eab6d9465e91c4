"""How the offline engine understands, in English, that something is to be found: text, or files."""

from __future__ import annotations

import re
from typing import Final

from sevenfold.models.offline.lexing import LITERAL, MARK, Lexed
from sevenfold.models.offline.steps import (
    Rule,
    Step,
    Unclear,
    everywhere,
    file_named,
    glob_for,
    is_file_name,
    one,
    searching,
    trimmed,
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


def folder(where: str | None, lexed: Lexed) -> str | None:
    """The folder or file that was named; None: everywhere."""
    if not where or _EVERYWHERE.fullmatch(trimmed(where)):
        return None
    part = re.sub(r"^the\s+|\s+(?:folder|directory|dir|file)$", "", trimmed(where), flags=re.I)
    part = re.sub(r"^(?:folder|directory|dir|file)\s+", "", part, flags=re.I)
    return file_named(part, lexed, loosely=True)


def what_and_where(rest: str, lexed: Lexed) -> tuple[str, dict[str, str]]:
    """What to look for, and where: the last "in" that a place follows."""
    for split in reversed(list(_WHERE.finditer(rest))):
        what, where = rest[: split.start()], trimmed(rest[split.end() :])
        kinds = _FILES_OF_A_KIND.fullmatch(where)
        if kinds and (pattern := glob_for(lexed.value(kinds["kind"]))):
            return what, {"glob": pattern}
        if _EVERYWHERE.fullmatch(where):
            return what, {}
        if place := folder(where, lexed):
            return what, {"path": place}
    return rest, {}


def _list(m: re.Match[str], lexed: Lexed) -> tuple[Step, ...] | None:
    """Files of a kind, in a folder or everywhere."""
    kind = m.groupdict().get("kind")
    pattern = glob_for(lexed.value(trimmed(kind))) if kind else "*"
    if pattern is None:
        return None
    wide = kind or re.search(r"\b(?:all|every)\b", m[0], re.I)
    where = folder(m.groupdict().get("where"), lexed)
    return one("Glob", pattern=everywhere(pattern) if wide else pattern, path=where)


def _named(m: re.Match[str], lexed: Lexed) -> tuple[Step, ...] | None:
    name = lexed.value(trimmed(m["name"]))
    if m.groupdict().get("ending"):
        name = f"*{name}" if name.startswith((".", "*")) else f"*.{name}"
    return one("Glob", pattern=everywhere(name), path=folder(m["where"], lexed))


def _find(m: re.Match[str], lexed: Lexed) -> tuple[Step, ...] | None:
    said, scope = what_and_where(m["rest"].strip(), lexed)
    if _NO_SEARCH.match(said):
        return None
    said = trimmed(said)
    bare = lexed.alone(said) is None
    if bare and (pattern := _files_wanted(said, lexed)):
        return one("Glob", pattern=everywhere(pattern), path=scope.get("path"))
    return one("Grep", pattern=sought(said, lexed), output_mode="content", **scope)


def _files_wanted(said: str, lexed: Lexed) -> str | None:
    """The file pattern, where files are looked for and not words in them."""
    named = re.fullmatch(r"(?:the\s+)?files?\s+(?:named\s+|called\s+)?(\S+)", said, re.I)
    if named:
        return lexed.value(named[1])
    pattern = re.fullmatch(r"(?:all\s+)?([^\s*]*\*\S*)(?:\s+files)?", said, re.I)
    if pattern:
        return pattern[1]
    if is_file_name(said):
        return said
    kind = _FILES_OF_A_KIND.fullmatch(said)
    return glob_for(lexed.value(kind["kind"])) if kind else None


_SHOUTED = r"[A-Z][A-Z0-9_]*[A-Z0-9]"
_WORD = rf"(?:{LITERAL}|(?!{MARK})[^\s,]+)"
_EITHER = re.compile(rf"{_WORD}(?:\s*,\s*{_WORD})*\s*,?\s+or\s+{_WORD}", re.I)
_BOTH = re.compile(rf"{_SHOUTED}s?(?:\s*,\s*{_SHOUTED}s?)*\s*,?\s+and\s+{_SHOUTED}s?")
_REMARKS = re.compile(r"(?<=[A-Z0-9])s?\s+(?:comments?|markers?|notes?|remarks?|tags?)$")


def sought(said: str, lexed: Lexed) -> str:
    """The pattern for what was said: "all FIXMEs" are FIXME, "TODO or FIXME" is either."""
    said = _OCCURRENCES.sub("", trimmed(said), count=1)
    if re.match(_SHOUTED, said):
        said = _REMARKS.sub("", said)
    if not (_EITHER.fullmatch(said) or _BOTH.fullmatch(said)):
        return searching(_singular(said), lexed)
    words = re.findall(_WORD, said)
    kept = [_singular(word) for word in words if word.lower() not in ("or", "and")]
    return "|".join(searching(word, lexed) for word in kept)


def _singular(word: str) -> str:
    """A word in capitals without the small s of its plural."""
    return word[:-1] if re.fullmatch(rf"{_SHOUTED}s", word) else word


def _find_in(m: re.Match[str], lexed: Lexed) -> tuple[Step, ...] | None:
    if _ELSEWHERE.fullmatch(m["where"].strip()):
        return (Unclear(lexed.raw(m[0]), "no_web"),)
    pattern = sought(m["what"], lexed)
    return one("Grep", pattern=pattern, output_mode="content", path=folder(m["where"], lexed))


def _grep(m: re.Match[str], lexed: Lexed) -> tuple[Step, ...] | None:
    rest = re.sub(r"^for\s+", "", m["rest"].strip(), flags=re.I)
    if rest.startswith("-"):
        return one("Bash", command=lexed.raw(trimmed(m[0])))
    what, scope = what_and_where(rest, lexed)
    words = what.split()
    if not scope and len(words) == 2 and (place := file_named(words[1], lexed, loosely=True)):
        what, scope = words[0], {"path": place}
    return one("Grep", pattern=lexed.value(trimmed(what)), output_mode="content", **scope)


def _files_with(m: re.Match[str], lexed: Lexed) -> tuple[Step, ...] | None:
    what, scope = what_and_where(m["rest"], lexed)
    return one("Grep", pattern=sought(what, lexed), output_mode="files_with_matches", **scope)


_WHEREIN = r"(?:\s+(?:are\s+)?(?:in|under|inside|of|from)\s+(?P<where>\S.*?))?"
_FILES = r"(?:which|what|find|list|show(?:\s+me)?|get)\s+(?:me\s+)?(?:all\s+)?(?:the\s+)?files?\s+"

SEARCH_RULES: Final[tuple[Rule, ...]] = tuple(
    (re.compile(pattern, re.I), build)
    for pattern, build in (
        (
            rf"{_FILES}(?:that\s+|which\s+)?(?P<ending>end(?:s|ing)?\s+(?:in|with)|with\s+(?:the\s+)?ending)"
            rf"\s+(?P<name>\S+?){_WHEREIN}[.?!]*$",
            _named,
        ),
        (
            rf"{_FILES}(?:are\s+|that\s+)?(?:match(?:es|ing)?|named|called|like)\s+(?:the\s+pattern\s+)?"
            rf"(?P<name>\S+?){_WHEREIN}[.?!]*$",
            _named,
        ),
        (
            rf"{_FILES}(?:that\s+|which\s+)?(?:contain(?:s|ing)?|mention(?:s|ing)?|us(?:es?|ing)"
            r"|includ(?:es?|ing))\s+(?P<rest>.+)",
            _files_with,
        ),
        (
            r"(?:list|show(?:\s+me)?|display|what\s+are)\s+(?:me\s+)?(?:all\s+)?(?:of\s+)?(?:the\s+|my\s+)?"
            rf"(?:(?P<kind>\S+)\s+)?(?:files|files\s+and\s+(?:folders|directories))"
            rf"(?:\s+(?:here|there))?{_WHEREIN}[.?!]*$",
            _list,
        ),
        (
            r"(?:what|which)\s+(?:(?P<kind>\S+)\s+)?files\s+(?:are|do\s+(?:we|you|i)\s+have|exist)"
            rf"(?:\s+(?:here|there))?{_WHEREIN}[.?!]*$",
            _list,
        ),
        (r"list\s+(?:all\s+)?(?P<kind>\S*\*\S*)" + _WHEREIN + r"[.?!]*$", _list),
        (
            r"(?:list|show(?:\s+me)?)\s+(?:the\s+)?(?:(?:current|this|working)\s+)?(?:directory|folder)"
            r"(?:\s+(?P<where>\S+))?[.?!]*$",
            _list,
        ),
        (
            r"list\s+(?:the\s+)?(?P<where>\S*/\S*|\.{1,2}|(?:src|docs?|tests?|lib|examples?|scripts?)(?=\W*$))"
            r"[.?!]*$",
            _list,
        ),
        (r"glob\s+(?:for\s+)?(?P<name>\S+)" + _WHEREIN + r"[.?!]*$", _named),
        (r"grep\s+(?P<rest>.+)", _grep),
        (
            r"(?:search|look)\s+(?:through\s+|in\s+|inside\s+)?(?P<where>(?!for\b)\S+|the\s+(?:web|internet))"
            r"\s+for\s+(?P<what>.+)",
            _find_in,
        ),
        (r"(?:find|search(?:\s+for)?|look\s+for|locate)\s+(?P<rest>.+)", _find),
    )
)
