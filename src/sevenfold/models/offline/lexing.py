"""How the offline engine takes a request apart: literals out of the way, then one piece per step.

A literal (a fenced block, `code`, a "quotation", a `$ command` line) is replaced by a mark, so that
nothing inside it is mistaken for a word of the request.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

import msgspec

MARK: Final = "\ufffc"
LITERAL: Final = rf"{MARK}\d+{MARK}"
"""A pattern: one literal in a skeleton."""
MOST_PIECES: Final = 40
"""A request with more lines than this is a text with a request on top of it."""

Kind: TypeAlias = Literal["fence", "shell", "code", "quote", "odd"]

_LITERALS = re.compile(
    r"(?P<ticks>`{3,})(?:[^\n`]*\n)?(?P<fence>.*?)(?:(?P=ticks)`*|\Z)"
    r"|(?m:^)[ \t]*(?:\d+[.)][ \t]+|[-*][ \t]+)?\$[ \t]+(?P<shell>[^\n]+)"
    r"|`(?P<code>[^`\n]+)`"
    r'|"(?P<double>(?:\\.|[^"\\\n])*)"'
    r"|(?<!\w)'(?P<single>[^'\n]+)'(?!\w)"
    r"|“(?P<curly>[^“”\n]*)”|‘(?P<curly1>[^‘’\n]*)’|「(?P<corner>[^「」\n]*)」"
    rf"|(?P<odd>{MARK})",
    re.DOTALL,
)
_KINDS: Final[dict[str, Kind]] = {
    "fence": "fence",
    "shell": "shell",
    "code": "code",
    "odd": "odd",
}
_ONE = re.compile(LITERAL)
_BULLET = re.compile(r"^\s*(?:\(?\d+[.)、]|[-*•])\s*(?=\S)")
_HARD = re.compile(
    r"\n+"
    rf"|(?<=[\w)\]{MARK}][.!?])\s+(?=[A-Z$]|(?:please|then|now|also)\b|{MARK})"
    r"|(?<=[。；！？])\s*"
)
ACTION: Final = (
    r"(?:please\s+)?(?:read|show|open|view|display|cat|run|execute|find|search|grep|look|list|glob"
    r"|write|create|save|put|replace|change|rename|remember|note|tell|say|explain|answer|give"
    r"|summari[sz]e|describe|report|let me know|count|check|print|what|which|who|where|when|how|why)\b"
)
"""How the next thing begins that somebody wants."""
_ACTION_ZH = (
    r"(?:请|帮我)?(?:读取|读|打开|查看|显示|看看|运行|执行|查找|搜索|列出|写入|创建|新建|替换|记住|告诉|回答"
    r"|总结|把|将|在|说)"
)
_SOFT = re.compile(
    r"(?<!\s)(?:"  # else a long run of spaces is tried from each of them
    r"\s*[,;]?\s*\b(?:and\s+)?(?:then|after(?:wards| that)|finally)\b[,\s]*"
    rf"|\s*,?\s+and\s+(?:also\s+)?(?={ACTION})"
    rf"|\s*[,;]\s*(?={ACTION})"
    r"|\s*[，,；;]?\s*(?:然后|接着|随后|之后|最后)再?[，,]?\s*"
    rf"|\s*[，,；;]\s*(?:并且?|再)?\s*(?={_ACTION_ZH})"
    rf"|\s*(?:并且?|再)\s*(?={_ACTION_ZH}))",
    re.IGNORECASE,
)


class Literally(msgspec.Struct, frozen=True):
    """Something to be taken word for word."""

    raw: str
    inner: str
    kind: Kind


class Lexed(msgspec.Struct, frozen=True):
    """A request with its literals taken out."""

    skeleton: str
    literals: tuple[Literally, ...]

    def alone(self, part: str) -> Literally | None:
        """The literal that a part of the skeleton is, if it is nothing else."""
        part = part.strip()
        return self.literals[int(part.strip(MARK))] if _ONE.fullmatch(part) else None

    def raw(self, part: str) -> str:
        """A part of the skeleton as it was written."""
        return _ONE.sub(lambda m: self.literals[int(m[0].strip(MARK))].raw, part)

    def value(self, part: str) -> str:
        """What a part means: without its quotes if it is one literal, else as it was written."""
        one = self.alone(part)
        return one.inner if one else self.raw(part).strip()

    def pieces(self) -> list[str]:
        """Lines and sentences of the skeleton; a fenced block stays with the line before it."""
        found: list[str] = []
        data = False
        for line in self.skeleton.split("\n"):
            if not line.strip() or line.lstrip().startswith(">"):
                data = data and bool(line.strip())
                continue
            one = self.alone(line)
            if one and one.kind == "fence" and found:
                found[-1] += " " + line.strip()
                continue
            listed = _BULLET.match(line) is not None or (one is not None and one.kind == "shell")
            if data and not listed:
                continue
            data = line.rstrip().endswith((":", "："))
            found += [p for p in _HARD.split(_BULLET.sub("", line)) if _says_something(p)]
        return found if len(found) <= MOST_PIECES else found[:1]


def lex(text: str) -> Lexed:
    literals: list[Literally] = []

    def take(match: re.Match[str]) -> str:
        name = str(match.lastgroup) if match.lastgroup != "ticks" else "fence"
        inner = match[name] or ""
        literals.append(Literally(match[0], inner, _KINDS.get(name, "quote")))
        return f"{MARK}{len(literals) - 1}{MARK}"

    return Lexed(_LITERALS.sub(take, text), tuple(literals))


def soft_parts(piece: str) -> list[str]:
    """A sentence at each "then", and at each "and" or comma before a verb we know."""
    return [part for part in _SOFT.split(piece) if _says_something(part)] or [piece]


def _says_something(part: str) -> bool:
    return re.search(r"[^\W_]", part) is not None or MARK in part
