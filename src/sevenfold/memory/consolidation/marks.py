"""Words by which a sentence says itself that something changed: now, no longer, instead of, 改为, 不再."""

from __future__ import annotations

import re
from typing import Final

import msgspec

_DATE: Final = r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|[A-Z][a-z]+\.?\s+\d{1,2},?\s+\d{4})"
_ENGLISH: Final = re.compile(
    rf"\b(?:as\s+of\s+(?:now|today|{_DATE})|since\s+{_DATE}|starting\s+(?:from\s+)?{_DATE}"
    rf"|(?:from|effective)\s+{_DATE}(?:\s+on(?:wards?)?)?|(?:from\s+)?now(?:\s+on)?|nowadays|currently"
    rf"|any\s?more|these\s+days|recently)\b,?\s*",
    re.IGNORECASE,
)
_STAMP: Final = re.compile(
    rf"^[\s*_]*[(\[（]?{_DATE}[)\]）]?[\s*_]*[:：–—-]+\s*|\s*[(\[（]\s*{_DATE}\s*[)\]）]\s*(?=[.。]?$)"
)
_INSTEAD: Final = re.compile(
    r",?\s*[(—–-]?\s*\b(?:instead\s+of|rather\s+than|in\s+place\s+of|replacing|previously|formerly"
    r"|used\s+to\s+be|was|no\s+longer)\s+(?P<old>[^,.;()\s][^,;()]{0,60}?)\)?\s*(?=[,;)]|\.?\s*$)",
    re.IGNORECASE,
)
_NO_LONGER: Final = re.compile(
    r"\bno\s+longer\b|\bstopped\b|\bnot\b(?=.*\bany\s?more\b)|不再", re.I
)
_MOVED: Final = re.compile(
    r"^(?P<who>.{2,80}?)\s+(?:has\s+|have\s+|was\s+|were\s+|is\s+|are\s+)?(?:now\s+)?"
    r"(?:moved|switched|migrated|changed|went|upgraded|downgraded|bumped|renamed|relocated)"
    r"(?:\s+over)?(?:\s+from\s+(?P<old>[^,;()]{1,60}?))?\s+to\s+(?P<new>[^,;()]{1,60}?)[.。]?\s*$",
    re.IGNORECASE,
)
_MOVED_ZH: Final = re.compile(
    r"^(?P<who>[^，,。]{1,30}?)(?:已经?|现在)?(?:从(?P<old>[^，,。]{1,20}?))?"
    r"(?:改为|改成|改到|改用|换成|换为|搬到|迁移?到|切换到|升级到)了?(?P<new>[^，,。]{1,30}?)[。.]?\s*$"
)
_NOW_ZH: Final = re.compile("现在|現在|目前|如今|已经|已經")
_CHANGED_ZH: Final = (
    (re.compile("改为了?|改成了?|改到了?|換成|换成了?|换为"), "是"),
    (re.compile("改用了?|使用|采用"), "用"),
    (re.compile("为(?=[^了什何])"), "是"),
)


class Marks(msgspec.Struct, frozen=True):
    """A sentence without the words that say that it is new, and what they say."""

    core: str
    """What holds, without `now` and the like."""
    changed: bool = False
    """Whether it says that something changed."""
    ended: bool = False
    """Whether it says that something is no longer so."""
    old: str = ""
    """What was before, if it names it."""
    who: str = ""
    new: str = ""
    """Of `the office moved to Munich`: the office, and Munich."""


def marks(text: str) -> Marks:
    """What a sentence says about its being new."""
    core, old = _STAMP.sub("", text), ""
    ended = _NO_LONGER.search(core) is not None
    if not ended and (found := _INSTEAD.search(core)):
        old = found["old"]
        core = (core[: found.start()] + core[found.end() :]).strip()
    plain = _NOW_ZH.sub("", _ENGLISH.sub("", core))
    moved = _MOVED.match(plain) or _MOVED_ZH.match(plain)
    for pattern, short in _CHANGED_ZH:
        plain = pattern.sub(short, plain)
    stamped = plain != core and not _only_shortened(core)
    return Marks(
        core=plain.strip() or text,
        changed=stamped or bool(old) or moved is not None or ended,
        ended=ended,
        old=(moved["old"] if moved and moved["old"] else old).strip(),
        who=moved["who"].strip() if moved else "",
        new=moved["new"].strip() if moved else "",
    )


def _only_shortened(text: str) -> bool:
    """Whether nothing but a plain `使用` or `为` was rewritten, which says nothing of a change."""
    if _ENGLISH.search(text) or _NOW_ZH.search(text):
        return False
    return re.search("改为|改成|改到|換成|换成|换为|改用", text) is None
