"""Whether a sentence tells a habit: `the job cleans up yesterday's partitions` is so on every day.

    is_standing(before, "yesterday", behind)     True: whatever day it is, it is the day before

What stands around a relative date decides. Where a habit is likely the words stay as they are: a date
in their place would be wrong from the next day on, and nobody could tell.
"""

from __future__ import annotations

import re
from typing import Final

_OFTEN: Final = re.compile(
    r"\b(?:always|never|usually|normally|typically|generally|often|sometimes|regularly|periodically"
    r"|against|compared\s+(?:to|with)|versus|vs|(?:older|newer)\s+than"
    r"|automatically|whenever|(?:mon|tues|wednes|thurs|fri|satur|sun)days)\b",
    re.IGNORECASE,
)
_EVERY: Final = re.compile(
    r"\b(?:every|each|weekly|nightly|daily|hourly|monthly|yearly|quarterly|cron|crontab|recurring)\b",
    re.IGNORECASE,
)
_DONE: Final = re.compile(
    r"\b(?:are|is|gets?)\s+(?:\w+ly\s+)?(?!schedul|plann|book|mov|postpon|delay|expect|push|cancel|need)"
    r"(?:\w{3,}ed|sent|made|run|taken|written|built|kept|held|done|given|cut|drawn)\b",
    re.IGNORECASE,
)
"""`are archived`: what is done again and again."""
_DOES: Final = re.compile(
    r"\b(?:aggregates|analy[sz]es|announces|archives|averages|backs\s+up|calculates|checks|cleans"
    r"|closes|collects|compacts|compares|compresses|computes|contains|copies|counts|covers|creates"
    r"|deletes|displays|downloads|drops|emails|expires|exports|fetches|generates|hides|imports|includes"
    r"|indexes|ingests|keeps|lists|loads|looks\s+at|mails|measures|merges|monitors|moves|opens|picks\s+up|pings|plots|posts"
    r"|precomputes|prepares|prints|processes|produces|prunes|publishes|pulls|purges|pushes|queries"
    r"|reads|rebuilds|recalculates|recomputes|refers|refreshes|removes|replays|reports|resends"
    r"|retries|returns|rolls\s+up|rotates|scans|sends|shows|snapshots|stores|summari[sz]es|sums|sweeps"
    r"|syncs|takes|tells|tracks|trims|truncates|updates|uploads|uses|verifies|wipes|writes)\b",
    re.IGNORECASE,
)
_AT_WORK: Final = re.compile(
    r"\b(?:cron\s*)?(?:jobs?|scripts?|bots?|pipelines?|workflows?|timers?|schedulers?|dashboards?"
    r"|digests?|quer(?:y|ies)|daemons?|backups?|reports?)\s+(?:that\s+|which\s+)?(?:only\s+|also\s+)?"
    r"(?!was|is|has|this|us)(?:[a-z]{2,}[^s\W]s|clean|cover|show|use|read|run|compare|delete|rotate)\b",
    re.IGNORECASE,
)
_HELD: Final = re.compile(
    r"\b(?:happens?|occurs?|takes?\s+place|runs?|meets|stand-?ups?|retros?|retrospectives?|office\s+hours"
    r"|on-?call|deploys|deployments|releases|builds|meetings|reviews|shifts|calls|syncs|sprints?"
    r"|backups?|rotations?|schedules?|days\s+off|plannings?|do\s+not|don['’]t|no|only"
    r"|(?:we|they|people|teams|everybody|everyone)\s+(?:\w+ly\s+)?(?:only\s+)?"
    r"(?:deploy|deploys|ship|ships|release|meet|merge|publish|rotate|clean|work)(?![^.;]*\d))\b",
    re.IGNORECASE,
)
_WAS: Final = re.compile(
    r"\b(?:was|were|did|had|went|met|said|told|sent|made|found|got|began|gave|came|took|saw|ran|broke"
    r"|(?!need|schedul|unus|relat|requir|expir)\w{3,}ed)\b",
    re.IGNORECASE,
)
_SINCE: Final = re.compile(r"\b(?:since|as\s+of)\s*$", re.IGNORECASE)
_SURELY_WAS: Final = re.compile(r"\b(?:was|were|did|had|broke|failed|began)\b", re.IGNORECASE)
_WILL: Final = re.compile(
    r"\b(?:will|shall|due|deadline|by|until|must|going\s+to|moved|postponed|rescheduled|cancell?ed)\b"
    r"|['’]ll\b",
    re.IGNORECASE,
)
_AHEAD: Final = re.compile(
    r"(?:the\s+day\s+after\s+)?tomorrow|next|in\s|coming|upcoming|by\s|(?:the\s+)?(?:end|week|month|year)\b"
    r"|.*\b(?:from\s+(?:now|today)|hence|after\s+next)$",
    re.IGNORECASE,
)
_OWNED: Final = re.compile(r"['’]s?\b")
_WEEKDAY: Final = re.compile(
    r"(?:on\s+)?(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|satur|sun)(?:day)?\b", re.IGNORECASE
)
_HAN_HABIT: Final = re.compile(
    "每|总是|總是|通常|一般|定期|例会|例會|站会|站會|周会|週會|晨会|定时|定時|惯例|都会|都會|照例"
)
_HAN_AT_WORK: Final = re.compile(
    "(?:任务|任務|脚本|腳本|作业|作業|机器人|機器人|流水线|流水線|报表|報表|看板|备份|備份|日报|日報|cron|job)"
    "(?!.{0,12}[了过過])",
    re.IGNORECASE,
)
_HAN_ONCE: Final = re.compile(
    "[了过過]|已经|已經|截止|改为|改為|改到|推迟|推遲|将于|將於|必须|必須"
)
_HAN_PAST: Final = re.compile("昨|前天|上|去年|今|本|这|這|.*前$")


def is_standing(before: str, expression: str, behind: str) -> bool:
    """`before` and `behind` are the rest of the sentence around an expression in English."""
    sentence = f"{before}{expression}{behind}"
    if _WEEKDAY.match(expression):
        return _weekday(before, sentence)
    if _AHEAD.match(expression):
        often = _OFTEN.search(sentence) or _EVERY.search(sentence)
        works = _OWNED.match(behind) and (_DOES.search(before) or _AT_WORK.search(before))
        return bool(often or works) and not _WILL.search(sentence)
    return not _SINCE.search(before) and _past(sentence)


def _past(sentence: str) -> bool:
    """The first verb decides: what follows may tell of single things, as in `files changed yesterday`."""
    signs = [one.search(sentence) for one in (_OFTEN, _DOES, _AT_WORK, _DONE)]
    every = _EVERY.search(sentence)
    if every and not _SURELY_WAS.search(sentence):
        signs.append(every)
    habits = [sign.start() for sign in signs if sign]
    if not habits:
        return False
    was = _WAS.search(sentence)
    return was is None or was.start() > min(habits)


def _weekday(before: str, sentence: str) -> bool:
    """`on Friday evening`: of every week, unless something says that it is this one."""
    if _OFTEN.search(sentence) or (_EVERY.search(sentence) and not _SURELY_WAS.search(before)):
        return True
    if _WILL.search(sentence):
        return False
    if _DONE.search(sentence):
        return True
    held = any(one.search(sentence) for one in (_HELD, _DOES, _AT_WORK))
    return held and not _WAS.search(before)


def is_standing_in_chinese(before: str, expression: str, behind: str) -> bool:
    """The same for an expression in Chinese, which has no tenses: some words tell of one time."""
    sentence = f"{before}{expression}{behind}"
    if _HAN_ONCE.search(re.split("[，,]", before)[-1] + re.split("[，,]", behind)[0]):
        return False
    if _HAN_HABIT.search(sentence):
        return True
    return bool(_HAN_PAST.match(expression) and _HAN_AT_WORK.search(before))
