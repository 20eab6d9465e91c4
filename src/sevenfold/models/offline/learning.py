"""What of a conversation is worth remembering, by rule: what was said, and said as something lasting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from sevenfold.memory.guard.secrets import find_secrets
from sevenfold.memory.topic import Type
from sevenfold.models.offline import cues_en, cues_zh
from sevenfold.models.offline.hearing import Heard, states
from sevenfold.models.offline.learned import TYPE_OF, Cue, Kind, Learned
from sevenfold.models.offline.remembering import type_of
from sevenfold.models.offline.telling import dated, parted, told
from sevenfold.models.offline.words import CJK, sentences, terms

MOST: Final = 12
"""Memories of one run; who says more than that of lasting worth at once has pasted something."""
LONGEST_MORE: Final = 240
FEWEST: Final = 2
"""Words that say what a statement is about."""

_REMEMBER: Final = re.compile(
    r"(?:please |can you |could you )*(?:(?:remember|memori[sz]e|keep in mind|make a note"
    r"|take note|note|don['’]?t forget"
    r"|do not forget|save (?:this|that)?(?: to| in)? ?(?:your )?memory|for (?:future"
    r"|later) reference)(?:,? ?(?:that|this))?"
    r"|for next time)\s*[:,—-]?\s+(?!when\b|how\b|what\b|the time\b|last\b|me\b|you\b|it\b|this\b"
    r"|that\b|we (?:talked|discussed|said|spoke)\b)"
    r"(?P<text>.{6,})"
    r"|(?:请你?|帮我)*(?:记住|记下来?|记一下|牢记|别忘了|不要忘记?)[，,：:\s]*(?P<zh>.{3,})",
    re.IGNORECASE,
)
_FORGET: Final = re.compile(
    r"(?:please |you can |now )*(?:forget (?:what (?:I|you) (?:said|told you|know|saved)|everything"
    r"(?: you know)?)\s+about\s+|forget\s+(?=(?:that (?:I|we|my|our)|my|our)\b)(?:that )?"
    r"|(?:delete|erase|remove|drop|forget) (?:the|your|that|any) (?:memory|memories|notes?) "
    r"(?:about|of|on|that)\s+)(?P<text>.{4,})"
    r"|(?:请你?)?(?:忘掉|忘记|忘了)(?=关于|有关|我)(?:关于|有关)?(?P<zh>[^，。]{2,}?)(?:的?(?:记忆|事情|事))?[。！]?$"
    r"|(?:请你?)?(?:删掉|删除|忘掉|忘记)(?P<zh2>[^，。]{2,}?)的?记忆[。！]?$",
    re.IGNORECASE,
)
_NOBODY: Final = re.compile(
    r"(?:it|its|it['’]s|this|that['’]?s?|these|those|they|he|she|there|here|which|you|your)\b"
    r"|[这那它他她你]",
    re.IGNORECASE,
)
"""Who or what a sentence is about that begins so, only the sentences before it tell."""
_MORE: Final = re.compile(
    r"(?:it|it['’]s|its|they|they['’]re|he|she|he['’]s|she['’]s|this|these|that['’]?s (?:because"
    r"|why|where|when|how))\b|因为|这是|它",
    re.IGNORECASE,
)
_PRAISE: Final = re.compile(
    r"(?:it|this|that|these|they)(?:['’]s|['’]re)?\s+(?:(?:is|are|was|were|really|so|such|an?|very"
    r"|quite|pretty|all|just|still|actually"
    r"|definitely|sounds?|looks?|feels?|felt|seems?|makes?|made|would be|will be|works?|helps?"
    r"|helped|gives?|much)\s+)*(?:great|good|perfect"
    r"|helpful|nice|awesome|amazing|wonderful|sense|fine|relief|exactly|better|hard|difficult"
    r"|frustrating|exciting|interesting"
    r"|cool|clear|useful|fun|lovely|me|us|what|like|realistic|manageable|comprehensive)\b",
    re.IGNORECASE,
)
_UNKIND: Final = re.compile(
    r"\bI(?:['’]m| am) (?:so |really |such |just |too )*(?:an? )?(?:\w+ )?(?:stupid|dumb|idiot"
    r"|lazy|useless|terrible|awful|worthless|failure|loser"
    r"|bad at|hopeless|incompetent|moron|fool)\b|我(?:真|太|很|好)?(?:笨|蠢|没用|差劲|懒)",
    re.IGNORECASE,
)
_IN_THE_CODE: Final = re.compile(
    r"\b(?:function|class|method|module|variable|endpoint|folder|directory|branch|commit|test"
    r"|script|file|import|readme|claude\.md)s?\b"
    r".{0,60}\b(?:is|are|returns?|takes?|lives?|calls?|contains?|says?|called|named|located"
    r"|defined)\b(?!.*\b(?:because|not|never|only)\b)"
    r"|(?:函数|方法|类|模块|文件|目录|分支).{0,20}(?:是|在|返回|叫)",
    re.IGNORECASE,
)
_NO: Final = re.compile(r"^(?:no|nope|wrong|不|不对|不是)\b|^不", re.IGNORECASE)
_BY_HAND: Final = re.compile(
    r"\b(?:I['’]?ll|I will|I['’]ve|I have|I (?:wrote|made|kept|put|used|left|named|split|added)"
    r"|from now on|instead of|rather than)\b"
    r"|我(?:会|将|把|用|保留|改成)|以后",
    re.IGNORECASE,
)
_UNSURE: Final = re.compile(
    r"\b(?:if|whether|what|how|why|when|unless|once|until|imagine|suppose|wish"
    r"|would you say)\s+(?:that )?$",
    re.IGNORECASE,
)
"""What stands before a clause that states nothing."""
_TASK: Final = re.compile(
    r"(?:please\s+)?(?:conduct|figure|find|write|create|make|give|show|tell|explain|list|generate"
    r"|draft|summari[sz]e|analy[sz]e"
    r"|compare|describe|provide|help|check|look|continue|add|change|fix|update|translate|rewrite"
    r"|revise|suggest|recommend"
    r"|consider|include|design|develop|build|calculate|solve|answer|act|take|read|review|edit|turn"
    r"|convert|come up|go|do|let me"
    r"|pretend|assume|use|remove|run|test|implement|refactor|rename|move|put|try|see|think|ask"
    r"|tell|repeat|expand|shorten)\b",
    re.IGNORECASE,
)
"""How a task begins; what is said in it is about the task."""
_SPEAKER: Final = re.compile(
    r"(?!(?:update|note|fyi|decision|deadline|reminder|info|rule)\b)\w{2,15}:\s", re.IGNORECASE
)
"""`Sue: I prefer not to`: a line of a dialogue that was pasted in."""
_ORDERS: Final = ("feedback", "correction", "confirmation")
_POINTED: Final = re.compile(
    r"\b(?:this|that|these|those|the (?:first|second|third|last|other|next|same)) (?:ones?|two"
    r"|three|option|part|step|plan|idea|section|topic|conversation)\b"
    r"|\bwith (?:this|that|it|these|those)\b"
    r"|\boption (?:\d+|[a-e]|one|two|three)\W*$",
    re.IGNORECASE,
)
_ASKED: Final = re.compile(r"[?？]")
_CJK: Final = re.compile(f"[{CJK}]")
_LATIN: Final = re.compile(r"[A-Za-z]{2,}")
_PLEASE: Final = re.compile(r"(?:please\s+|请你?)(?=\S)", re.IGNORECASE)
_EMPTY: Final = frozenset(
    terms(
        "user thing things stuff okay today now really something anything let lets keep stick "
        "start move forward option options step next part definitely bit lot way good great sure"
    )
)


def learned(said: Iterable[Heard]) -> list[Learned]:
    """What is to be remembered and what is to be forgotten, in the order in which it was said."""
    found: list[Learned] = []
    before: Heard | None = None
    for one in said:
        if one.withdraws:
            if found and one.number - found[-1].number <= 2:
                found.pop()
            continue
        if found and _goes_on(one, before):
            found[-1] = _longer(found[-1], one)
            before = None
            continue
        new = _forgotten(one) or _kept(one)
        if new is not None and new.forgets:
            found = [old for old in found if not about(new.text) <= about(old.text)]
        fresh = new is not None and not any(_same(new, old) for old in found)
        if new is not None and fresh:
            found.append(new)
        before = one if new is not None and fresh and not new.forgets else None
    return found[:MOST]


def _goes_on(one: Heard, before: Heard | None) -> bool:
    """Whether a sentence says more of what the one right before it was about."""
    if before is None or (one.number, one.place) != (before.number, before.place + 1):
        return False
    if len(one.text) > LONGEST_MORE or _PRAISE.match(one.core) or find_secrets(one.text):
        return False
    return _MORE.match(one.core) is not None and len(about(one.text)) >= FEWEST + 1


def _longer(first: Learned, more: Heard) -> Learned:
    return replace(
        first,
        text=f"{first.text} {told(_statement(more), more.day)}",
        quote=f"{first.quote} {more.text}",
    )


def _same(new: Learned, old: Learned) -> bool:
    return new.forgets == old.forgets and about(new.text) <= about(old.text)


def about(text: str) -> frozenset[str]:
    """The words that say what a statement is about."""
    return frozenset(terms(text)) - _EMPTY


def _forgotten(one: Heard) -> Learned | None:
    found = _FORGET.match(one.core)
    if found is None:
        return None
    text = next(part for part in found.groups() if part)
    return Learned(
        "remember", "project", text.rstrip(".。!！ "), one.text, one.day, one.number, forgets=True
    )


def _kept(one: Heard) -> Learned | None:
    made = _remembered(one) or _by_cue(one)
    if made is None or len(about(made.text)) < _least(made.text):
        return None
    if made.kind == "fact" and len(about(made.text)) < FEWEST * 2:
        return None
    if made.kind in ("plan", "decision", "event", "fact") and _POINTED.search(one.core):
        return None
    if _UNKIND.search(one.text) or find_secrets(one.text):
        return None
    return made


def _least(text: str) -> int:
    """A pair of Chinese characters says less than a word."""
    return FEWEST + bool(_CJK.search(text) and not _LATIN.search(text))


def _remembered(one: Heard) -> Learned | None:
    """Whatever somebody asks to remember, unless the code says it already."""
    found = _REMEMBER.match(one.core)
    if found is None:
        return None
    text = _rest_of(one, found["text"] or found["zh"])
    if _IN_THE_CODE.search(text) or not states(text):
        return None
    return _made(one, "remember", type_of(text), text)


def _rest_of(one: Heard, tail: str) -> str:
    """The end of a sentence as it was typed, with its quotations."""
    return one.text[-len(tail) :] if one.text.endswith(tail) else _after(one.text, tail)


def _after(text: str, tail: str) -> str:
    start = text.find(tail[:8])
    return text[start:] if start >= 0 else tail


def _by_cue(one: Heard) -> Learned | None:
    cues = cues_zh.CUES if _CJK.search(one.core) else cues_en.CUES
    for cue in cues:
        if _fits(cue, one):
            if cue.kind == "confirmation":
                return _confirmed(one)
            return _made(one, cue.kind, TYPE_OF[cue.kind], _statement(one))
    return None


def _fits(cue: Cue, one: Heard) -> bool:
    if cue.alone and one.working:
        return False
    found = cue.pattern.search(one.core)
    if found is None or (cue.unless and cue.unless.search(one.core)):
        return False
    if cue.kind not in _ORDERS and (
        _TASK.match(one.core) or _UNSURE.search(one.core[: found.start()])
    ):
        return False
    if cue.kind == "correction":
        return _NO.match(one.lead or one.text) is not None
    if cue.kind == "detail":
        return _ASKED.search(one.answered) is not None
    if _SPEAKER.match(one.core):
        return False
    return cue.kind == "confirmation" or _NOBODY.match(one.core) is None


def _statement(one: Heard) -> str:
    """The sentence without the words that lead in."""
    lead = len(one.lead)
    return one.text[lead:] if one.text[:lead].lower() == one.lead else one.text


def _made(one: Heard, kind: Kind, type: Type, text: str) -> Learned:
    why = ""
    if type == "feedback":
        text, why = parted(_PLEASE.sub("", text, count=1) if _PLEASE.match(text) else text)
    why = dated(why, one.day)
    return Learned(kind, type, told(text, one.day), one.text, one.day, one.number, why)


def _confirmed(one: Heard) -> Learned | None:
    """What the assistant had said it did, where the person wants it so in future."""
    did = next(_ways(one.answered), "")
    if not did:
        return None
    text = f"The user approves of this way of working: “{did}”"
    if _CJK.search(one.core):
        text = f"用户认可这样的做法：“{did}”"
    return Learned("confirmation", "feedback", text, one.text, one.day, one.number)


def _ways(answered: str) -> Iterator[str]:
    for sentence in sentences(answered[:4_000]):
        plain = sentence.strip("*#>- ")
        if _BY_HAND.search(plain) and not _ASKED.search(plain) and len(plain) <= 300:
            yield plain
