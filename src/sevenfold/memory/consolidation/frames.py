"""Sentences that give one thing two values: the same words, and one place in which they differ.

Only what can have one value at a time counts: where something runs, when it is due, which version it is.
`The user likes jazz` and `the user likes rock` are two facts, and so are `we use port 80 for A` and `… for
B`. What is not surely one of the kind is none.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal

import msgspec

from sevenfold.memory.consolidation.marks import Marks, marks
from sevenfold.memory.consolidation.word_sets import stem_set, word_set
from sevenfold.memory.consolidation.wording import plain_words
from sevenfold.memory.search.words import STOP, stem

_ARTICLES: Final = frozenset(["the", "a", "an"])
_COPULA: Final = frozenset(["is", "are", "=", ":", "是"])
_OPEN: Final = stem_set(
    "use uses prefer prefers want wants need needs require requires expect expects"
) | frozenset(["用"])
"""Verbs that may have many objects: more has to be shared before two of them exclude each other."""
_PLACED: Final = stem_set(
    "runs run lives live works work deploys deploy deployed hosted listens listen located based "
    "stored happens happen starts start ends end begins begin due scheduled set pinned reports "
    "report belongs points resides sits ships ship launches launch called named takes costs lasts "
    "stays targets defaults owned maintained led written built follows closes opens expires renews "
    "limited capped"
) | word_set("在 住 叫")
_NOUNS: Final = word_set(
    "用户 备用 费用 应用 通用 信用 作用 用途 用法 用例 存在 在线 所在 住址 住宅 是否 但是"
)
_LOOSE: Final = stem_set("runs run works work built follows targets starts")
_VERBS: Final = _COPULA | _OPEN | _PLACED
_INTO: Final = word_set("in on at to by until as after before 每")
_APART: Final = word_set(
    "for of when if with from in on at to by about than per between via through under over and or "
    "during while because not no"
)
_JOINS: Final = word_set("and or not no never nor but either both also 和 与 或 不")
_ATTRIBUTES: Final = stem_set(
    "deadline version port name branch editor role title owner lead manager maintainer timezone "
    "language database framework shell theme font style limit timeout budget price cost address url "
    "host path folder directory location office city country phone email date day time schedule "
    "cadence release launch freeze status stage target default format encoding license size region "
    "provider registry runner compiler linter formatter model length width indentation threshold "
    "count number server cluster queue broker"
) | word_set(
    "截止 期限 日期 端口 版本 分支 数据 框架 负责 时区 语言 预算 地址 办公 主题 默认 时间 状态 格式 编辑 "
    "部署 发布 名称 名字 城市 职位 角色 上限 超时 主机 路径 目录 区域 价格 频率"
)
_NO_MORE: Final = stem_set("no not longer stopped do does 不 再")
_DAY: Final = re.compile(
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|jan(?:uary)?|feb(?:ruary)?|march|april|may|june|july"
    r"|august|(?:septem|octo|novem|decem)ber",
    re.IGNORECASE,
)
_CLAUSE: Final = re.compile(r"[;,，；]|\s[—–-]\s")
_HOLDS_IT: Final = re.compile(
    r"(?P<who>[A-Z][\w-]*(?: [A-Z][\w-]*)?) (?:now )?"
    r"(?P<role>(?:is (?:now )?the|leads (?:now )?the) .{3,60}?)\.?"
)
_SIGN: Final = re.compile("[\u3400-\u9fff]")
LONGEST: Final = 5
_LONGEST_SIGNS: Final = 12


class Frame(msgspec.Struct, frozen=True):
    """Two sentences in one form, and what stands in the one place in which they differ."""

    words: tuple[str, ...]
    """What both say, with an empty word for the place."""
    values: tuple[str, str]
    subject: frozenset[str]
    """The words before the verb that carry a meaning."""
    shared: frozenset[str]
    """All such words that both have."""
    needs: Literal["", "subject", "mark"]
    """What else has to show that one excludes the other: names of one subject, or a word like `now`."""


class Core(msgspec.Struct, frozen=True):
    """A sentence as it is compared with others of its form."""

    raw: tuple[str, ...]
    words: tuple[str, ...]
    marks: Marks


@lru_cache(maxsize=20_000)
def core(text: str) -> Core:
    """A sentence without articles and without the words that say that it is new."""
    found = marks(text)
    raw = tuple(word for word in plain_words(found.core) if word not in _ARTICLES)
    return Core(raw, tuple(stem(word) for word in raw), found)


def frame(one: Core, other: Core) -> Frame | None:
    """The form that two sentences share, if they give one thing two values."""
    left, right = one.words, other.words
    start = _shared(left, right)
    behind = _shared(left[start:][::-1], right[start:][::-1])
    old, new = one.raw[start : len(left) - behind], other.raw[start : len(right) - behind]
    if not _comparable(old, new):
        return None
    at = next((i for i in range(start - 1, -1, -1) if _is_verb(left, i)), -1)
    numeric = all(any(sign.isdigit() for sign in "".join(value)) for value in (old, new))
    if at < 0 or not _leads_to_value(left[at], one.raw[at + 1 : start], numeric):
        return None
    subject = _telling(one.raw[:at])
    tail = _telling(one.raw[len(left) - behind :]) if behind else frozenset[str]()
    shared = subject | tail | _telling(one.raw[at + 1 : start]) | ({left[at]} - _COPULA)
    words = (*left[:start], "", *left[len(left) - behind :])
    needs = _needs(left[at], _kind(old), subject, bool(tail))
    return Frame(words, (" ".join(old), " ".join(new)), subject, shared, needs)


def _needs(
    verb: str, kind: str, subject: frozenset[str], tail: bool
) -> Literal["", "subject", "mark"]:
    attribute = bool(subject & _ATTRIBUTES)
    if verb in _COPULA and kind == "place":
        return "" if attribute else "subject"
    if verb in _COPULA:
        sure = attribute or (kind != "words" and len(subject) > 1)
        return "" if sure else "mark"
    if kind == "words" and not tail and verb in _OPEN | _LOOSE:
        return "subject"
    return ""


def ended(old: Core, new: Core) -> bool:
    """Whether the new sentence says that what the old one says is no longer so."""
    if not new.marks.ended or old.marks.ended:
        return False
    clause = _CLAUSE.split(new.marks.core)[0]
    said = [word for word in core(clause).words if word not in _NO_MORE]
    was = list(old.words)
    return len(said) >= 3 and was[: len(said)] == said and len(was) - len(said) <= 3


def moved(old: Core, new: Core) -> bool:
    """`The office moved to Munich` against `the office is in Berlin`."""
    found = new.marks
    if not found.new or not found.who:
        return False
    who = _telling(tuple(plain_words(found.who)))
    at = next((i for i in range(len(old.words)) if _is_verb(old.words, i)), -1)
    if at < 0 or not who or _telling(old.raw[:at]) != who:
        return False
    value = [word for word in old.raw[at + 1 :] if word not in _INTO]
    named = plain_words(found.old)
    if named and not _holds(value, named):
        return False
    return (
        0 < len(value) <= LONGEST
        and not _JOINS.intersection(value)
        and value != plain_words(found.new)
    )


def negates(one: Core, other: Core) -> bool:
    """Whether the only difference between two sentences is a `not`."""
    no = {"not", "no", "never", "do", "doe", "不", "别", "勿", "没"}
    left = [word for word in one.words if word not in no]
    right = [word for word in other.words if word not in no]
    return left == right and len(left) >= 2 and one.words != other.words


def passed_on(one: Core, other: Core) -> bool:
    """`Ann is the release manager`, then `Bob is the release manager`: there is one at a time."""
    left, right = (_HOLDS_IT.fullmatch(each.marks.core) for each in (one, other))
    if left is None or right is None:
        return False
    roles = [plain_words(found["role"].replace("now ", "")) for found in (left, right)]
    return roles[0] == roles[1] and left["who"] != right["who"]


def names_the_old(new: Core, value: str) -> bool:
    """Whether a sentence names this value as the one that was before."""
    return bool(new.marks.old) and _holds(plain_words(new.marks.old), value.split())


def _is_verb(words: tuple[str, ...], at: int) -> bool:
    """Whether a word is one of the verbs; a Chinese sign may only be part of a noun."""
    if words[at] not in _VERBS:
        return False
    around = {"".join(words[max(0, at - 1) : at + 1]), "".join(words[at : at + 2])}
    return not around & _NOUNS


def _holds(words: list[str], part: list[str]) -> bool:
    size = len(part)
    return any(words[at : at + size] == part for at in range(len(words) - size + 1))


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _comparable(old: tuple[str, ...], new: tuple[str, ...]) -> bool:
    """Whether two values are short, of one kind, and neither is part of the other."""
    if not old or not new or (_JOINS | _APART).intersection((*old, *new)):
        return False
    if any(len(value) > _limit(value) for value in (old, new)):
        return False
    if set(old) <= set(new) or set(new) <= set(old):
        return False
    return _kind(old) == _kind(new)


def _limit(value: tuple[str, ...]) -> int:
    return _LONGEST_SIGNS if any(_SIGN.match(word) for word in value) else LONGEST


def _kind(value: tuple[str, ...]) -> str:
    text = " ".join(value)
    if "://" in text:
        return "place"
    if any(sign.isdigit() for sign in text):
        return "number"
    return "day" if any(_DAY.fullmatch(word) for word in value) else "words"


def _leads_to_value(verb: str, between: tuple[str, ...], numeric: bool) -> bool:
    """Whether what stands between the verb and the place leaves it the verb's own value."""
    signs = sum(1 for word in between if _SIGN.match(word))
    if signs and not numeric:
        return len(between) <= 4 and all(_SIGN.match(word) for word in between)
    rest = between
    if rest and rest[0] in _INTO and verb not in _OPEN:
        rest = rest[1:]
    return len(rest) <= 4 and not _APART.intersection(rest)


def _telling(words: tuple[str, ...]) -> frozenset[str]:
    """The words of a phrase that carry a meaning; Chinese signs two by two."""
    found = {stem(word) for word in words if word not in STOP and not _SIGN.match(word)}
    signs = "".join(word for word in words if _SIGN.match(word))
    found |= {signs[at : at + 2] for at in range(len(signs) - 1)}
    return frozenset(word for word in found if len(word) > 1 or word.isdigit())
