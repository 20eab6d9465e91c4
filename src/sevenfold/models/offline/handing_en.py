"""How somebody says in English that an agent, a fork or a message is wanted."""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from sevenfold.models.offline.handing import (
    EVERYONE,
    FORK,
    GENERAL,
    TOGETHER,
    Handed,
    Offer,
    Sent,
    work_in,
)
from sevenfold.models.offline.lexing import ACTION, Lexed
from sevenfold.models.offline.verbs import POLITE

_COUNTS: Final = {"two": 2, "both": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_BEHIND: Final = r"in\s+(?:the\s+)?background"
_APART: Final = r"in\s+(?:its|an?)\s+(?:own\s+|new\s+|separate\s+|isolated\s+|git\s+)*work-?tree"
_NOUN: Final = r"(?P<noun>sub-?agent|agent|teammate|fork)"
_WORD: Final = r"(?!(?:at|the|an?|of|in|on|to|for|with|and|or|look|called|named)\b)[^\s,:：]+"
_NAMED: Final = r"(?:\s*,?\s+(?:called|named)\s+(?P<name>[\w.-]*\w))?"
_ONE: Final = (
    rf"(?:an?|the|another|one|my|our|some)\s+(?P<kind>(?:{_WORD}\s+){{0,3}}?){_NOUN}"
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
    rf"(?P<kind>(?:{_WORD}\s+){{0,3}}?)(?P<noun>sub-?agents|agents|teammates|forks)\b"
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
_NOBODY: Final = frozenset(
    re.findall(
        r"\w+",
        "me us him her them it you myself yourself someone somebody nobody people the a an my your our "
        "this that these those what which who how why where when if whether apart about anything "
        "something",
    )
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


def handed_over(piece: str, lexed: Lexed, offer: Offer) -> list[Handed] | Sent | None:
    """What this sentence gives to others; None: nothing. A list without work announces what follows."""
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


def _work(said: str, lexed: Lexed, offer: Offer) -> list[Handed] | None:
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


def _single(m: re.Match[str], lexed: Lexed, offer: Offer) -> list[Handed] | None:
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
    handed: Handed, m: re.Match[str], lexed: Lexed, offer: Offer, background: bool
) -> Handed:
    """With what stands before and behind the word `agent`."""
    words = lexed.raw(m["kind"] or "")
    noun = m["noun"].lower()
    kind = FORK if noun.startswith(FORK) else offer.kind(words) or GENERAL
    return replace(
        handed,
        kind=kind,
        name=m.groupdict().get("name"),
        background=handed.background or background or "background" in words.lower().split(),
        teammate=noun.startswith("teammate"),
    )


def _several(m: re.Match[str], lexed: Lexed, offer: Offer) -> list[Handed] | None:
    """One for each part between semicolons; a single part is given to each of them."""
    parts = [part for part in re.split(r"[;；]", m["work"]) if part.strip(" .")]
    if not parts:
        return [] if m["link"] else None
    count = m["count"].lower()
    many = _COUNTS.get(count) or (int(count) if count.isdigit() else 2)
    parts = parts * min(many, TOGETHER) if len(parts) == 1 else parts
    behind = bool(re.search("back", m["how"], re.I))
    return [_of_kind(_handed(part, lexed), m, lexed, offer, behind) for part in parts]


def _forked(m: re.Match[str], lexed: Lexed) -> list[Handed]:
    parts = [m["work"]]
    if m["count"]:
        parts = [part for part in re.split(r"[;；]", m["work"]) if part.strip(" .")]
    behind = bool(m["how"])
    handed = [_handed(part, lexed, kind=FORK) for part in parts]
    return [replace(one, background=one.background or behind) for one in handed]


def _handed(part: str, lexed: Lexed, kind: str = GENERAL) -> Handed:
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
    return Handed(work_in(part, lexed), kind, background=background, worktree=worktree)


def _sent(said: str, lexed: Lexed, offer: Offer) -> Sent | None:
    if not offer.messages:
        return None
    for pattern in (_TELL, _SEND, _LET_KNOW):
        if (m := pattern.match(said)) and (to := _addressed(m, offer)):
            return Sent(to, work_in(m["text"], lexed))
    if (m := _ASK.match(said)) and (name := offer.name(m["to"])):
        return Sent(name, work_in(m["text"], lexed))
    return None


def _addressed(m: re.Match[str], offer: Offer) -> str | None:
    """Who is meant; with an article only who is known, or called an agent."""
    to, noun = m["to"], m["noun"]
    if to.lower() in _ALL or (m["the"] and to.lower() in ("team", "others", "teammates", "agents")):
        return EVERYONE
    if to.lower() in _NOBODY or to.lower() in ("agent", "teammate"):
        return None
    return offer.name(to) or (to if noun or not m["the"] else None)
