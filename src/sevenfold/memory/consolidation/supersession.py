"""Replaces the older of two sentences that give one thing two values: the same words but in one place.

A sentence may say itself that it is new ("now", "no longer", "instead of", 改为); otherwise the dates of
both decide. Where neither is so, or it is not sure that both are about one thing, both stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations
from typing import Final, Literal

import msgspec

from sevenfold.memory.consolidation.dates import SpokenAt, date_sentence, explain_newer, is_in_future
from sevenfold.memory.consolidation.sentences import (
    MemorySentence,
    compute_overlap,
    find_name_words,
    find_subject_words,
    is_numbered_apart,
    is_same_subject,
    make_wording,
    read_description,
    read_sentences,
    replace_sentence,
    split_wording,
)
from sevenfold.memory.consolidation.staged_memories import StagedFiles, SupersededStatement, UnclearPair
from sevenfold.memory.dreams.losses import StatementIndex
from sevenfold.memory.dreams.statements import normalise_words, read_facts
from sevenfold.memory.folder.names import make_file_key
from sevenfold.memory.index import parse_pointers, split_rows
from sevenfold.memory.text.words import STOP, make_stem_set, make_word_set, stem_word
from sevenfold.memory.topic_file import Topic, change_topic, read_topic

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
_NO_LONGER: Final = re.compile(r"\bno\s+longer\b|\bstopped\b|\bnot\b(?=.*\bany\s?more\b)|不再", re.I)
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


class ChangeMarks(msgspec.Struct, frozen=True):
    """A sentence without the words that say that it is new, and what they say."""

    core: str  # The statement without `now` and the like
    changed: bool = False  # True if it says that something changed
    ended: bool = False  # True if it says that something is no longer so
    old: str = ""  # The state before, if the sentence names it
    who: str = ""
    new: str = ""  # Of `the office moved to Munich`: the office, and Munich


def find_change_marks(text: str) -> ChangeMarks:
    """The signs in a sentence that it tells a change."""
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
    return ChangeMarks(
        core=plain.strip() or text,
        changed=stamped or bool(old) or moved is not None or ended,
        ended=ended,
        old=(moved["old"] if moved and moved["old"] else old).strip(),
        who=moved["who"].strip() if moved else "",
        new=moved["new"].strip() if moved else "",
    )


def _only_shortened(text: str) -> bool:
    """True if nothing but a plain `使用` or `为` was rewritten, which says nothing of a change."""
    if _ENGLISH.search(text) or _NOW_ZH.search(text):
        return False
    return re.search("改为|改成|改到|換成|换成|换为|改用", text) is None


_ARTICLES: Final = frozenset(["the", "a", "an"])
_COPULA: Final = frozenset(["is", "are", "=", ":", "是"])
_OPEN: Final = make_stem_set(
    "use uses prefer prefers want wants need needs require requires expect expects"
) | frozenset(["用"])
"""Verbs that may have many objects: more has to be shared before two of them exclude each other."""
_PLACED: Final = make_stem_set(
    "runs run lives live works work deploys deploy deployed hosted listens listen located based "
    "stored happens happen starts start ends end begins begin due scheduled set pinned reports "
    "report belongs points resides sits ships ship launches launch called named takes costs lasts "
    "stays targets defaults owned maintained led written built follows closes opens expires renews "
    "limited capped"
) | make_word_set("在 住 叫")
_NOUNS: Final = make_word_set(
    "用户 备用 费用 应用 通用 信用 作用 用途 用法 用例 存在 在线 所在 住址 住宅 是否 但是"
)
_LOOSE: Final = make_stem_set("runs run works work built follows targets starts")
_VERBS: Final = _COPULA | _OPEN | _PLACED
_INTO: Final = make_word_set("in on at to by until as after before 每")
_APART: Final = make_word_set(
    "for of when if with from in on at to by about than per between via through under over and or "
    "during while because not no"
)
_JOINS: Final = make_word_set("and or not no never nor but either both also 和 与 或 不")
_ATTRIBUTES: Final = make_stem_set(
    "deadline version port name branch editor role title owner lead manager maintainer timezone "
    "language database framework shell theme font style limit timeout budget price cost address url "
    "host path folder directory location office city country phone email date day time schedule "
    "cadence release launch freeze status stage target default format encoding license size region "
    "provider registry runner compiler linter formatter model length width indentation threshold "
    "count number server cluster queue broker"
) | make_word_set(
    "截止 期限 日期 端口 版本 分支 数据 框架 负责 时区 语言 预算 地址 办公 主题 默认 时间 状态 格式 编辑 "
    "部署 发布 名称 名字 城市 职位 角色 上限 超时 主机 路径 目录 区域 价格 频率"
)
_UNITS: Final = make_stem_set(
    "millisecond second minute hour day week month year percent degree metre meter kilometre mile litre "
    "gram kilo kilogram ton ms min kb mb gb tb mib gib tib euro dollar pound franc seat page request"
) | make_word_set("秒 分钟 小时 天 周 月 年 元 度 米")
"""What a number counts: with it the number is a value, and no name as in "gate 4"."""
_PAST: Final = make_word_set("was were had did took ran reached lasted cost went got became")
_NO_MORE: Final = make_stem_set("no not longer stopped do does 不 再")
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


class SentenceFrame(msgspec.Struct, frozen=True):
    """Two sentences in one form, and what stands in the one place in which they differ."""

    words: tuple[str, ...]  # The words of both, with an empty word for the place
    values: tuple[str, str]
    subject: frozenset[str]  # The words before the verb that carry a meaning
    shared: frozenset[str]  # All such words that both have
    needs: Literal["", "subject", "mark"]
    """The further evidence that one excludes the other: names of one subject, or a word like `now`."""


class SentenceCore(msgspec.Struct, frozen=True):
    """A sentence as it is compared with others of its form."""

    raw: tuple[str, ...]
    words: tuple[str, ...]
    marks: ChangeMarks


@lru_cache(maxsize=20_000)
def make_core(text: str) -> SentenceCore:
    """A sentence without articles and without the words that say that it is new."""
    found = find_change_marks(text)
    raw = tuple(word for word in split_wording(found.core) if word not in _ARTICLES)
    return SentenceCore(raw, tuple(stem_word(word) for word in raw), found)


def find_shared_frame(one: SentenceCore, other: SentenceCore) -> SentenceFrame | None:
    """The form that two sentences share, if they give one thing two values."""
    left, right = one.words, other.words
    start = _shared(left, right)
    behind = _shared(left[start:][::-1], right[start:][::-1])
    old, new = one.raw[start : len(left) - behind], other.raw[start : len(right) - behind]
    if not _comparable(old, new):
        return None
    at = next((i for i in range(start - 1, -1, -1) if _is_verb(left, i)), -1)
    if at >= 0 and one.raw[at] in _PAST:
        return None  # two outages may have lasted so long
    numeric = all(any(sign.isdigit() for sign in "".join(value)) for value in (old, new))
    if at < 0 or not _leads_to_value(left[at], one.raw[at + 1 : start], numeric):
        subject = _telling(one.raw[:start])
        if not (numeric and len(subject) > 1 and _is_quantity(one.raw, start, behind)):
            return None
        return SentenceFrame(
            (*left[:start], "", *left[len(left) - behind :]),
            (" ".join(old), " ".join(new)),
            subject,
            subject,
            "",
        )
    subject = _telling(one.raw[:at])
    tail = _telling(one.raw[len(left) - behind :]) if behind else frozenset[str]()
    shared = subject | tail | _telling(one.raw[at + 1 : start]) | ({left[at]} - _COPULA)
    words = (*left[:start], "", *left[len(left) - behind :])
    needs = _needs(left[at], _kind(old), subject, bool(tail))
    return SentenceFrame(words, (" ".join(old), " ".join(new)), subject, shared, needs)


def _is_quantity(raw: tuple[str, ...], start: int, behind: int) -> bool:
    """True for a number in the present beside a unit ("kept for 30 days") or a word like `port`."""
    if len(raw) - behind - start != 1 or _PAST.intersection(raw):
        return False
    unit = behind > 0 and stem_word(raw[len(raw) - behind]) in _UNITS
    named = {"".join(raw[start - 2 : start]), stem_word(raw[start - 1])} if start > 1 else set[str]()
    return unit or bool(named & _ATTRIBUTES)


def _needs(verb: str, kind: str, subject: frozenset[str], tail: bool) -> Literal["", "subject", "mark"]:
    attribute = bool(subject & _ATTRIBUTES)
    if verb in _COPULA and kind == "place":
        return "" if attribute else "subject"
    if verb in _COPULA:
        return "" if attribute or (kind != "words" and len(subject) > 1) else "mark"
    if kind == "words" and not tail and verb in _OPEN | _LOOSE:
        return "subject"
    return ""


def is_ended(old: SentenceCore, new: SentenceCore) -> bool:
    """True if the new sentence says that what the old one says is no longer so."""
    if not new.marks.ended or old.marks.ended:
        return False
    clause = _CLAUSE.split(new.marks.core)[0]
    said = [word for word in make_core(clause).words if word not in _NO_MORE]
    was = list(old.words)
    return len(said) >= 3 and was[: len(said)] == said and len(was) - len(said) <= 3


def is_moved(old: SentenceCore, new: SentenceCore) -> bool:
    """`The office moved to Munich` against `the office is in Berlin`."""
    found = new.marks
    if not found.new or not found.who:
        return False
    who = _telling(tuple(split_wording(found.who)))
    at = next((i for i in range(len(old.words)) if _is_verb(old.words, i)), -1)
    if at < 0 or not who or _telling(old.raw[:at]) != who:
        return False
    value = [word for word in old.raw[at + 1 :] if word not in _INTO]
    named = split_wording(found.old)
    if named and not _holds(value, named):
        return False
    return (
        0 < len(value) <= LONGEST and not _JOINS.intersection(value) and value != split_wording(found.new)
    )


def is_negation(one: SentenceCore, other: SentenceCore) -> bool:
    """True if the only difference between two sentences is a `not`."""
    no = {"not", "no", "never", "do", "doe", "不", "别", "勿", "没"}
    left = [word for word in one.words if word not in no]
    right = [word for word in other.words if word not in no]
    return left == right and len(left) >= 2 and one.words != other.words


def is_role_passed_on(one: SentenceCore, other: SentenceCore) -> bool:
    """`Ann is the release manager`, then `Bob is the release manager`: there is one at a time."""
    left, right = (_HOLDS_IT.fullmatch(each.marks.core) for each in (one, other))
    if left is None or right is None:
        return False
    roles = [split_wording(found["role"].replace("now ", "")) for found in (left, right)]
    return roles[0] == roles[1] and left["who"] != right["who"]


def has_old_value(new: SentenceCore, value: str) -> bool:
    """True if a sentence names this value as the one that was before."""
    return bool(new.marks.old) and _holds(split_wording(new.marks.old), value.split())


def _is_verb(words: tuple[str, ...], at: int) -> bool:
    """True if a word is one of the verbs; a Chinese sign may only be part of a noun."""
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
    """True if two values are short, of one kind, and neither is part of the other."""
    if not old or not new or (_JOINS | _APART).intersection((*old, *new)):
        return False
    for value in (old, new):
        if len(value) > (_LONGEST_SIGNS if any(_SIGN.match(word) for word in value) else LONGEST):
            return False
    if set(old) <= set(new) or set(new) <= set(old):
        return False
    return _kind(old) == _kind(new)


def _kind(value: tuple[str, ...]) -> str:
    text = " ".join(value)
    if "://" in text:
        return "place"
    if any(sign.isdigit() for sign in text):
        return "number"
    return "day" if any(_DAY.fullmatch(word) for word in value) else "words"


def _leads_to_value(verb: str, between: tuple[str, ...], numeric: bool) -> bool:
    """True if what stands between the verb and the place leaves it the verb's own value."""
    signs = sum(1 for word in between if _SIGN.match(word))
    if signs and not numeric:
        return len(between) <= 4 and all(_SIGN.match(word) for word in between)
    rest = between
    if rest and rest[0] in _INTO and verb not in _OPEN:
        rest = rest[1:]
    return len(rest) <= 4 and not _APART.intersection(rest)


def _telling(words: tuple[str, ...]) -> frozenset[str]:
    """The words of a phrase that carry a meaning; Chinese signs two by two."""
    found = {stem_word(word) for word in words if word not in STOP and not _SIGN.match(word)}
    signs = "".join(word for word in words if _SIGN.match(word))
    found |= {signs[at : at + 2] for at in range(len(signs) - 1)}
    return frozenset(word for word in found if len(word) > 1 or word.isdigit())


STRONG: Final = 0.5  # The part of the words of both names from which on they surely name one subject
_THE_USER: Final = frozenset(["user", "用户"])
_CROWD: Final = 60  # A word that so many sentences have does not bring two of them together
SHARED: Final = 0.4
"""The part of the words of the shorter sentence that both have to share to be compared at all."""
_LONGEST: Final = 40  # Words of a sentence that gives something a value; longer ones tell a story
_ROUNDS: Final = 20
_UNCLEAR: Final = 50


class DatedClaim(msgspec.Struct, frozen=True):
    """A sentence of a memory, when it was said, and its form."""

    topic: Topic
    statement: MemorySentence
    said: SpokenAt
    core: SentenceCore

    @property
    def text(self) -> str:
        return self.statement.text


class _SupersededVerdict(msgspec.Struct, frozen=True):
    old: DatedClaim
    new: DatedClaim
    because: str  # Empty when it is not clear which one is newer
    values: tuple[str, str] = ("", "")  # What differs, the old value first; empty where that is not known


def supersede_statements(
    files: StagedFiles, now: float
) -> tuple[list[SupersededStatement], list[UnclearPair]]:
    """Replace what is out of date; says what, by what, and what it could not decide."""
    done: list[SupersededStatement] = []
    unclear: list[UnclearPair] = []
    for _ in range(_ROUNDS):
        claims = [
            DatedClaim(
                topic,
                one,
                files.spoken.get((topic.file, normalise_words(one.text)))
                or date_sentence(one.text, topic, files.times.get(topic.file, 0.0)),
                make_core(one.text),
            )
            for topic in files.workable()
            for one in read_sentences(topic)
            if one.form == "prose"
        ]
        found, unclear = _round(files, claims, now)
        done += found
        if not found:
            break
    return done, unclear[:_UNCLEAR]


def _round(
    files: StagedFiles, claims: list[DatedClaim], now: float
) -> tuple[list[SupersededStatement], list[UnclearPair]]:
    done: list[SupersededStatement] = []
    unclear: list[UnclearPair] = []
    touched: set[str] = set()
    lists = _listing_frames(claims)
    for one, other in _pairs(claims):
        verdict = _judged(one, other, lists, now)
        if verdict is None:
            continue
        old, new = verdict.old, verdict.new
        if not verdict.because:
            unclear.append(_unclear(old, new, "nothing shows which of them is newer"))
        elif old.topic.file not in touched and new.topic.file not in touched:
            if replaced := _replace_older(files, verdict):
                touched.add(old.topic.file)
                done += replaced
            else:
                unclear.append(_unclear(old, new, "the newer one does not say all of the older"))
    return done, unclear


def _pairs(claims: list[DatedClaim]) -> Iterator[tuple[DatedClaim, DatedClaim]]:
    """Sentences of one type of memory that share words which are not everywhere, and enough of them."""
    said = [make_wording(claim.text) for claim in claims]
    holders: dict[str, list[int]] = {}
    for at, one in enumerate(said):
        if len(one.words) <= _LONGEST:
            for word in one.content:
                holders.setdefault(word, []).append(at)
    near: set[tuple[int, int]] = set()
    for places in holders.values():
        if len(places) <= _CROWD:
            near.update(combinations(places, 2))
    for left, right in sorted(near):
        one, other = said[left], said[right]
        both, least = len(one.content & other.content), min(len(one.content), len(other.content))
        enough = both >= min(2, least - 1) and both >= SHARED * least
        marked = any(claims[at].core.marks.changed for at in (left, right))
        if not (enough or marked) or one.words == other.words:
            continue
        if claims[left].topic.type == claims[right].topic.type:
            yield claims[left], claims[right]


def _listing_frames(claims: list[DatedClaim]) -> set[tuple[str, ...]]:
    """Forms that one memory uses twice with different values: there, they are a list."""
    found: set[tuple[str, ...]] = set()
    by_file: dict[str, list[DatedClaim]] = {}
    for claim in claims:
        if claim.statement.field == "body":
            by_file.setdefault(claim.topic.file, []).append(claim)
    for mine in by_file.values():
        for one, other in combinations(mine[:60], 2):
            plain = not (one.core.marks.changed or other.core.marks.changed)
            if plain and "text" not in (one.said.how, other.said.how):
                shape = find_shared_frame(one.core, other.core)
                found |= {shape.words} if shape else set()
    return found


def _judged(
    one: DatedClaim, other: DatedClaim, lists: set[tuple[str, ...]], now: float
) -> _SupersededVerdict | None:
    """The sentence of two that is out of date; None when they have nothing to do with each other."""
    shape = find_shared_frame(one.core, other.core)
    if shape is not None:
        if shape.words in lists or not _fits(one, other, shape):
            return None
        return _dated(one, other, shape, now)
    for old, new in ((one, other), (other, one)):
        change = is_ended(old.core, new.core) or is_moved(old.core, new.core)
        if change and _related(old.topic, new.topic, make_wording(old.text).content):
            if explain_newer(old.said, new.said, marked=False, now=now):
                return _SupersededVerdict(old, new, "")  # what it says has changed was said again since
            return _SupersededVerdict(old, new, _shown(new, old, now) or "it says itself that this changed")
    passed_on = is_role_passed_on(one.core, other.core) and _strongly(one.topic, other.topic)
    if passed_on or (
        is_negation(one.core, other.core)
        and _related(one.topic, other.topic, make_wording(one.text).content)
    ):
        return _dated(one, other, None, now)
    return None


def _dated(
    one: DatedClaim, other: DatedClaim, shape: SentenceFrame | None, now: float
) -> _SupersededVerdict:
    """The newer of two, by its own words or by the dates of both."""
    for at, (old, new) in enumerate(((one, other), (other, one))):
        if is_in_future(new.text, now):
            return _SupersededVerdict(old, new, "")
        value = shape.values[at] if shape else ""
        if value and has_old_value(new.core, value) and not has_old_value(old.core, value):
            if not explain_newer(old.said, new.said, marked=False, now=now):
                return _SupersededVerdict(old, new, f"it names {value!r} as what was before")
            return _SupersededVerdict(old, new, "")
    left, right = shape.values if shape else ("", "")
    ways = [
        _SupersededVerdict(one, other, _shown(other, one, now), (left, right)),
        _SupersededVerdict(other, one, _shown(one, other, now), (right, left)),
    ]
    shown = [way for way in ways if way.because and not _is_weak(way.old, way.new)]
    return shown[0] if len(shown) == 1 else _SupersededVerdict(one, other, "")


def _is_weak(old: DatedClaim, new: DatedClaim) -> bool:
    """True if only the time of a file speaks for it, and the other says that it is the new state."""
    return new.said.how == "file" and not new.core.marks.changed and old.core.marks.changed


def _shown(new: DatedClaim, old: DatedClaim, now: float) -> str:
    # Within one memory only the sentence itself can say that it is newer than the one beside it.
    if new.topic.file == old.topic.file and new.said.how != "text" and not new.core.marks.changed:
        return ""
    marked = new.core.marks.changed and not old.core.marks.changed
    return explain_newer(new.said, old.said, marked=marked, now=now)


def _fits(one: DatedClaim, other: DatedClaim, shape: SentenceFrame) -> bool:
    """True if two sentences of one form are about one thing, which can have one value only."""
    marked = one.core.marks.changed or other.core.marks.changed
    if shape.needs == "mark" and not marked:
        return False
    if one.topic.file == other.topic.file:
        return len(shape.shared) >= 1
    strong = _strongly(one.topic, other.topic)
    if shape.needs == "subject" and not (strong or marked):
        return False
    if _value_is_the_subject(one, other, shape):
        return False
    least = 1 if strong else 2
    return len(shape.shared) >= least and _related(one.topic, other.topic, shape.shared)


def _strongly(one: Topic, other: Topic) -> bool:
    """True if the names alone show that two memories are about one thing."""
    overlap = compute_overlap(find_subject_words(one), find_subject_words(other))
    return one.file == other.file or (overlap >= STRONG and not is_numbered_apart(one, other))


def _value_is_the_subject(one: DatedClaim, other: DatedClaim, shape: SentenceFrame) -> bool:
    """`The port of alpha` in alpha.md and `the port of beta` in beta.md differ in what they are about."""
    first, second = (make_wording(value).content for value in shape.values)
    return bool(first & find_name_words(one.topic)) and bool(second & find_name_words(other.topic))


def _related(one: Topic, other: Topic, shared: frozenset[str]) -> bool:
    """True if two memories are about one thing: by name, by description, or because both are the user's."""
    if one.file == other.file or is_same_subject(one, other):
        return True
    if one.type == "user" and other.type == "user" and shared & _THE_USER:
        return True
    left, right = find_subject_words(one) & shared, find_subject_words(other) & shared
    return bool(left) and bool(right) and len(shared) >= 3 and not is_numbered_apart(one, other)


def _replace_older(files: StagedFiles, verdict: _SupersededVerdict) -> list[SupersededStatement]:
    """Put the newer sentence in the place of the older, if the loss report will agree.

    The memory keeps its time: what else it says is no newer. Where its description or its line in the
    index names the old value, they name the new one then. A memory that would contradict itself
    afterwards stays as it is.
    """
    old, new = verdict.old, verdict.new
    topic = files.topic(old.topic.file)
    if topic.data is not old.topic.data or not _takes_its_place(old, new):
        return []
    apart = old.topic.file != new.topic.file
    taken_out = not apart and old.statement.field == "body"
    text = "" if taken_out else _ending_like(new.text, old.text)
    said = [(old.text, new.text)]
    data = replace_sentence(topic, old.statement, text)
    if apart and verdict.values[0]:
        if not _is_settled(verdict):
            return []
        changed = read_topic(data, topic.file)
        told = read_description(changed)
        if old.statement.field == "body" and _names_old(told, verdict):
            renewed = _renew(told, verdict)
            if not renewed or not _is_newer(told, new):
                return []
            data = change_topic(changed, description=renewed)
            said.append((told, renewed))
        said += _renew_lines(files, topic.file, verdict)
    files.put(topic.file, data)
    files.spoken[topic.file, normalise_words(text)] = new.said
    if apart:
        files.newer[topic.file] = new.topic.file
    return [
        SupersededStatement(topic.file, before, after, new.topic.file, verdict.because)
        for before, after in said
    ]


def _is_settled(verdict: _SupersededVerdict) -> bool:
    """True if every other sentence of the older memory that names the old value is replaced, too."""
    old, theirs = verdict.old, [make_core(one.text) for one in read_sentences(verdict.new.topic)]
    rest = [one for one in read_sentences(old.topic) if one.field == "body" and one != old.statement]
    return all(
        any(find_shared_frame(make_core(one.text), each) for each in theirs)
        for one in rest
        if _names_old(one.text, verdict)
    )


def _names_old(text: str, verdict: _SupersededVerdict) -> bool:
    old, new = (_find_value(text, value) for value in verdict.values)
    return bool(old) and not new


def _renew(text: str, verdict: _SupersededVerdict) -> str:
    """The text with the new value for the old; empty where the old one is not found as it is written."""
    old = r"\W+".join(map(re.escape, verdict.values[0].split()))
    new = _find_value(verdict.new.text, verdict.values[1])
    renewed, count = re.subn(rf"(?<!\w){old}(?!\w)", lambda found: new, text, flags=re.IGNORECASE)
    return renewed if count and new else ""


def _find_value(text: str, value: str) -> str:
    """A value as a sentence writes it."""
    pattern = r"\W+".join(map(re.escape, value.split()))
    found = re.search(rf"(?<!\w){pattern}(?!\w)", text, re.IGNORECASE)
    return found[0] if found else ""


def _is_newer(text: str, new: DatedClaim) -> bool:
    """True if the loss report takes the newer memory for evidence that a text is out of date."""
    shelf = StatementIndex({new.topic.file: new.topic.data})
    found = read_facts(f"{text}\n".encode(), new.topic.file)
    return bool(found) and all(shelf.newer(one, [new.topic.file]) for one in found)


def _renew_lines(files: StagedFiles, file: str, verdict: _SupersededVerdict) -> list[tuple[str, str]]:
    """Lines of the index for the older memory alone that name the old value name the new one."""
    said: list[tuple[str, str]] = []
    out: list[str] = []
    for row in split_rows(files.index):
        text = row.text
        if row.pointing and [make_file_key(link.file) for link in row.links] == [make_file_key(file)]:
            end = row.links[0].end
            hook = " ".join(parse_pointers(row)[0].hook.split())
            if _names_old(hook, verdict) and (renewed := _renew(text[end:], verdict)):
                text = text[:end] + renewed
                said.append((hook, _renew(hook, verdict)))
        out.append(text)
    if said:
        files.index = "".join(out)
    return said


def _takes_its_place(old: DatedClaim, new: DatedClaim) -> bool:
    shelf = StatementIndex({new.topic.file: new.topic.data})
    mine = normalise_words(old.text)
    found = [
        one for one in read_facts(old.topic.data, old.topic.file) if normalise_words(one.fact.text) == mine
    ]
    file = new.topic.file  # "9090 instead of 8080" still says the old value, which is as good
    return bool(found) and all(shelf.newer(one, [file]) or shelf.holder(one) for one in found)


def _ending_like(text: str, model: str) -> str:
    """The sentence with or without a full stop, as the one that stood there."""
    if model[-1:] in ".。":
        return text if text[-1:] in ".。!?！？" else text + model[-1]
    return text[:-1] if text[-1:] in ".。" else text


def _unclear(one: DatedClaim, other: DatedClaim, why: str) -> UnclearPair:
    return UnclearPair(one.topic.file, one.text, other.topic.file, other.text, why)
