"""How somebody says in Chinese that an agent, a fork or a message is wanted."""

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
from sevenfold.models.offline.lexing import Lexed

_COUNTS: Final = {"两": 2, "二": 2, "三": 3, "四": 4, "五": 5, "六": 6}
_AGENT: Final = r"(?:子?代理|子?智能体|(?:sub-?)?agents?)"
_FORK: Final = r"(?:分叉|forks?)"
_WORD: Final = r"[A-Za-z0-9_:-]+"
_GO: Final = r"(?:\s|[，,：:]|去|来|帮我|帮忙|分别|同时|并行|各自|(?:在)?后台)*"
_POLITE = re.compile(
    r"(?:(?:请问?|麻烦|帮我|帮忙|你?能否|你能|首先|先|现在|然后|接着|再|最后)[，,：:\s]*)+"
)
_SINGLE = re.compile(
    r"(?:(?:让|叫|派|用|启动|创建|要)\s*(?:一个|一名|另一个|另外一个|这个|那个|个)?|(?:一个|另一个))\s*"
    rf"(?:(?:名叫|叫做|叫|名为)\s*(?P<name>{_WORD})\s*的\s*)?(?P<behind>后台)?的?\s*"
    rf"(?P<kind>(?!agent|sub-?agent|fork){_WORD}\s*)?(?P<noun>{_AGENT}|{_FORK}|队友)(?P<go>{_GO})(?P<work>\S.*)",
    re.I,
)
_SEVERAL = re.compile(
    r"(?:让|叫|派|用|启动)?\s*(?P<count>[两二三四五六几多]|\d{1,2})(?:个|名)\s*(?P<behind>后台)?的?\s*"
    rf"(?P<kind>(?!agent|sub-?agent|fork){_WORD}\s*)?(?P<noun>{_AGENT}|{_FORK})(?P<go>{_GO})(?P<work>.*)",
    re.I,
)
_FORKED = re.compile(
    rf"{_FORK}(?:一下|自己|这个对话|当前对话|出去)*\s*(?:[：:，,]|并|来|去)\s*(?P<work>\S.*)", re.I
)
_AHEAD = re.compile(r"(?:在后台[，,：:]?|后台[，,：:])\s*(?=\S)")
_NAME: Final = r"(?P<to>[A-Za-z*][A-Za-z0-9_.:@/-]*|大家|所有人|所有代理|全体)"
_SENDING: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?:告诉|通知|转告)\s*{_NAME}\s*(?:[：:，,]|说|要)?\s*(?P<text>\S.*)",
        rf"(?:给|向)\s*{_NAME}\s*(?:发送?|捎|写)(?:一?[条封个])?(?:消息|信|话)?\s*[：:，,]?\s*(?P<text>\S.*)",
        rf"(?:发送?|写)(?:一?[条封个])?(?:消息|信)?给\s*{_NAME}\s*[：:，,]\s*(?P<text>\S.*)",
    )
)
_ASK = re.compile(
    r"(?:让|叫|问|请)\s*(?P<to>[A-Za-z][A-Za-z0-9_.:-]*)(?:\s|[：:，,]|去|来)*(?P<text>[^\s：:，,].*)"
)
_ALL: Final = ("大家", "所有人", "所有代理", "全体", EVERYONE)


def handed_over(piece: str, lexed: Lexed, offer: Offer) -> list[Handed] | Sent | None:
    """What this sentence gives to others; None: nothing. A list without work announces what follows."""
    said = piece.strip()
    if said.endswith(("?", "？", "吗", "呢")):
        return None
    if ahead := _POLITE.match(said):
        said = said[ahead.end() :]
    background = _AHEAD.match(said)
    said = said[background.end() :] if background else said
    if not background and offer.messages and (sent := _sent(said, lexed, offer)):
        return sent
    if not offer.agents:
        return None
    found = _work(said, lexed, offer)
    if found is None and background:
        found = [Handed(work_in(said, lexed))]
    return [replace(one, background=True) for one in found] if found and background else found


def _work(said: str, lexed: Lexed, offer: Offer) -> list[Handed] | None:
    if m := _SEVERAL.match(said):
        parts = [part for part in re.split(r"[;；]", m["work"]) if part.strip(" 。")]
        if not parts:
            return [] if m["go"].rstrip().endswith((":", "：")) else None
        many = _COUNTS.get(m["count"]) or (int(m["count"]) if m["count"].isdigit() else 2)
        parts = parts * min(many, TOGETHER) if _stands_alone(m) and len(parts) == 1 else parts
        return [_handed(part, m, lexed, offer) for part in parts]
    if m := _FORKED.match(said):
        return [Handed(work_in(m["work"], lexed), FORK)]
    if m := _SINGLE.match(said):
        handed = _handed(m["work"], m, lexed, offer)
        return [replace(handed, name=m["name"], teammate=m["noun"] == "队友")]
    if (m := _ASK.match(said)) and (kind := offer.kind(m["to"])) not in (None, FORK):
        return [Handed(work_in(m["text"], lexed), str(kind))]
    return None


def _stands_alone(m: re.Match[str]) -> bool:
    """Whether no more parts follow in the next pieces: a Chinese semicolon ends a piece."""
    return not m["work"].rstrip().endswith("；")


def _handed(part: str, m: re.Match[str], lexed: Lexed, offer: Offer) -> Handed:
    fork = re.fullmatch(_FORK, m["noun"], re.I)
    kind = FORK if fork else offer.kind(m["kind"] or "") or GENERAL
    behind = bool(m["behind"]) or "后台" in m["go"]
    return Handed(work_in(part, lexed), kind, background=behind)


def _sent(said: str, lexed: Lexed, offer: Offer) -> Sent | None:
    for pattern in _SENDING:
        if m := pattern.match(said):
            to = EVERYONE if m["to"] in _ALL else offer.name(m["to"]) or m["to"]
            return Sent(to, work_in(m["text"], lexed))
    if (m := _ASK.match(said)) and (name := offer.name(m["to"])):
        return Sent(name, work_in(m["text"], lexed))
    return None
