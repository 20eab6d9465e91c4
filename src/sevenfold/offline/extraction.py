"""The offline engine looks back over a conversation and saves what later sessions will need.

    reply 1     the memories that may say something already are read, all at once, if there are any
    reply 2     one Write for each new memory, and one for each that has changed; more replies like it
                where there is no room for all of them in one
    reply 3     what was saved, in a line

Only what a person typed counts, and only what rules can be sure of. The program adds the line in the index.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from html import unescape
from pathlib import PurePath
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from sevenfold.core.messages import Block, Directive, Text, ToolUse, strip_half_characters
from sevenfold.core.tokens import estimate_tokens
from sevenfold.memory.folder.labels import classify_memory, make_memory_name
from sevenfold.memory.folder.names import ENDING, choose_file, explain_bad_file, make_file_key
from sevenfold.memory.guard.secrets import find_secrets
from sevenfold.memory.text.words import CJK
from sevenfold.memory.topic_file import (
    Origin,
    Topic,
    Type,
    change_topic,
    encode_new_topic,
    read_topic,
    shorten_text,
)
from sevenfold.offline.conversation import OfflineConversation, PastCall, find_ask, iterate_calls
from sevenfold.offline.cues import (
    BESIDE,
    CHINESE_CUES,
    CUES,
    LIMIT,
    TYPE_OF,
    WEAK,
    ExtractedFact,
    Kind,
    MemoryCue,
    compute_worth,
    is_material,
    is_of_today,
    is_passing,
    is_plain,
)
from sevenfold.offline.language import (
    TypedSentence,
    find_terms,
    find_typed_sentences,
    is_statement,
    resolve_dates,
    rewrite_statement,
    split_reason,
    split_sentences,
    trim_remarks,
)

_CJK: Final = re.compile(f"[{CJK}]")
MOST: Final = 12
"""Memories of one message; who says more than that of lasting worth at once has pasted something."""
LONGEST_MORE: Final = 240
LONGEST_JOINED: Final = 400  # Characters of sentences that become one memory
FEWEST: Final = 2  # Words that say what a statement is about

_REMEMBER: Final = re.compile(
    r"(?:please |can you |could you )*(?:(?:remember|memori[sz]e|keep in mind|make a note|take note|note"
    r"|don['’]?t forget|do not forget|save (?:this|that)?(?: to| in)? ?(?:your )?memory|for (?:future"
    r"|later) reference)(?:,? ?(?:that|this))?|for next time)\s*[:,—-]?\s+(?!when\b|how\b|what\b"
    r"|the time\b|last\b|me\b|you\b|it\b|this\b|that\b|we (?:talked|discussed|said|spoke)\b)"
    r"(?P<text>.{6,})|(?:请你?|帮我)*(?:记住|记下来?|记一下|牢记|别忘了|不要忘记?)[，,：:\s]*(?P<zh>.{3,})",
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
"""A sentence that begins so is about what only the sentences before it tell."""
_MORE: Final = re.compile(
    r"(?:it|it['’]s|its|they|they['’]re|he|she|he['’]s|she['’]s|this|these|that['’]?s (?:because"
    r"|why|where|when|how))\b|因为|这是|它",
    re.IGNORECASE,
)
_PRAISE: Final = re.compile(
    r"(?:it|this|that|these|they)(?:['’]s|['’]re)?\s+(?:(?:is|are|was|were|really|so|such|an?|very|quite"
    r"|pretty|all|just|still|actually|definitely|sounds?|looks?|feels?|felt|seems?|makes?|made|would be"
    r"|will be|works?|helps?|helped|gives?|much)\s+)*(?:great|good|perfect|helpful|nice|awesome|amazing"
    r"|wonderful|sense|fine|relief|exactly|better|hard|difficult|frustrating|exciting|interesting|cool"
    r"|clear|useful|fun|lovely|me|us|what|like|realistic|manageable|comprehensive)\b",
    re.IGNORECASE,
)
_UNKIND: Final = re.compile(
    r"\bI(?:['’]m| am) (?:so |really |such |just |too )*(?:an? )?(?:\w+ )?(?:stupid|dumb|idiot"
    r"|lazy|useless|terrible|awful|worthless|failure|loser"
    r"|bad at|hopeless|incompetent|moron|fool)\b|我(?:真|太|很|好)?(?:笨|蠢|没用|差劲|懒)",
    re.IGNORECASE,
)
_IN_THE_CODE: Final = re.compile(
    r"\b(?:function|class|method|module|variable|endpoint|folder|directory|branch|commit|test|script|file"
    r"|import|readme|claude\.md)s?\b.{0,60}\b(?:is|are|returns?|takes?|lives?|calls?|contains?|says?"
    r"|called|named|located|defined)\b(?!.*\b(?:because|not|never|only)\b)|(?:函数|方法|类|模块|文件|目录"
    r"|分支).{0,20}(?:是|在|返回|叫)"
    r"|\b(?:merged|committed|pushed|rebased|cherry-picked|reverted)\b.{0,40}\b(?:branch|commit|main|master|pr"
    r"|pull request|#\d+)\b|\b(?:pr|pull request|commit) (?:#?\d+|[0-9a-f]{7,})\b"
    r"|\b(?:tests?|build|ci|pipeline)s? (?:(?:is|are|was|were) )?(?:now )?(?:pass\w*|fail\w*|green|red"
    r"|broken)\b|\b(?:agents|claude|readme|contributing)\.md\b",
    re.IGNORECASE,
)
_NO: Final = re.compile(r"^(?:no|nope|wrong|不|不对|不是)\b|^不", re.IGNORECASE)
_BY_HAND: Final = re.compile(
    r"\b(?:I['’]?ll|I will|I['’]ve|I have|I (?:wrote|made|kept|put|used|left|named|split|added)"
    r"|from now on|instead of|rather than)\b|我(?:会|将|把|用|保留|改成)|以后",
    re.IGNORECASE,
)
_UNSURE: Final = re.compile(
    r"\b(?:if|whether|what|how|why|when|unless|once|until|imagine|suppose|wish"
    r"|would you say)\s+(?:that )?$",
    re.IGNORECASE,
)
"""Stands before a clause that states nothing."""
_TASK: Final = re.compile(
    r"(?:please\s+)?(?:conduct|figure|find|write|create|make|give|show|tell|explain|list|generate|draft"
    r"|summari[sz]e|analy[sz]e|compare|describe|provide|help|check|look|continue|add|change|fix|update"
    r"|translate|rewrite|revise|suggest|recommend|consider|include|design|develop|build|calculate|solve"
    r"|answer|act|take|read|review|edit|turn|convert|come up|go|do|let me|pretend|assume|use|remove|run"
    r"|test|implement|refactor|rename|move|put|try|see|think|ask|tell|repeat|expand|shorten)\b",
    re.IGNORECASE,
)
"""The beginning of a task; what is said in it is about the task."""
_SPEAKER: Final = re.compile(
    r"(?!(?:update|note|fyi|decision|deadline|reminder|info|rule)\b)\w{2,15}:\s", re.IGNORECASE
)
"""`Sue: I prefer not to`: a line of a dialogue that was pasted in."""
_ORDERS: Final = ("feedback", "correction", "confirmation")
_POINTED: Final = re.compile(
    r"\b(?:this|that|these|those|the (?:first|second|third|last|other|next|same)) (?:ones?|two|three"
    r"|option|part|step|plan|idea|section|topic|conversation)\b|\bwith (?:this|that|it|these|those)\b"
    r"|\boption (?:\d+|[a-e]|one|two|three)\W*$",
    re.IGNORECASE,
)
_ASKED: Final = re.compile(r"[?？]")
_LATIN: Final = re.compile(r"[A-Za-z]{2,}")
_PLEASE: Final = re.compile(r"(?:please\s+|请你?)(?=\S)", re.IGNORECASE)
_EMPTY: Final = frozenset(
    find_terms(
        "user thing things stuff okay today now really something anything let lets keep stick "
        "start move forward option options step next part definitely bit lot way good great sure"
    )
)


def extract_facts(said: Iterable[TypedSentence]) -> list[ExtractedFact]:
    """The facts to remember and to forget, in the order in which they were said."""
    found: list[ExtractedFact] = []
    before: TypedSentence | None = None
    sentences = [clause for one in said for clause in split_clauses(one)]
    told: set[int] = set()  # The places of sentences that were added to another one
    for at, one in enumerate(sentences):
        if at in told:
            continue
        if one.withdraws:
            if found and one.number - found[-1].number <= 2:
                found.pop()
            continue
        if found and found[-1].kind not in WEAK and _goes_on(one, before):
            text = f"{found[-1].text} {rewrite_statement(_statement(one), one.day)}"
            found[-1] = replace(found[-1], text=text, quote=f"{found[-1].quote} {one.text}")
            before = None
            continue
        before = None
        if (new := _forgotten_learning(one) or _kept(one)) is None:
            continue
        if new.kind in WEAK and not _CJK.search(new.text):
            new = _add_more(new, at, sentences, told)
        words = find_subject_words(new.text)
        if new.forgets:
            found = [old for old in found if not words <= find_subject_words(old.text)]
        if not any(new.forgets == old.forgets and words <= find_subject_words(old.text) for old in found):
            found.append(new)
            before = None if new.forgets else one
    places = Counter[int]()
    return [one for one in found if _count_up(places, one.number) <= MOST]


def _count_up(counts: Counter[int], number: int) -> int:
    counts[number] += 1
    return counts[number]


def _add_more(
    fact: ExtractedFact, at: int, sentences: Sequence[TypedSentence], told: set[int]
) -> ExtractedFact:
    """The fact with what else its message says about the same, in the order in which it was said."""
    own = sentences[at]
    subject, length = find_subject_words(own.core), len(fact.text)
    chosen = {at}
    for place, one in enumerate(sentences):
        if one.number != own.number or place in told | {at} or "?" in one.text or one.withdraws:
            continue
        about = find_subject_words(one.core)
        if not about & subject or length + len(one.text) > LONGEST_JOINED or is_passing(one):
            continue
        if is_unclear(one) or compute_worth(one, find_kind(one)) <= BESIDE or find_secrets(one.text):
            continue
        chosen.add(place)
        subject, length = subject | about, length + len(one.text)
    told |= chosen
    if len(chosen) == 1:
        return fact
    parts = [sentences[place] for place in sorted(chosen)]
    text = " ".join(rewrite_statement(trim_remarks(_statement(one)), one.day) for one in parts)
    first = last = at  # the quote is what was said in one go around the fact itself
    while first - 1 in chosen and sentences[first - 1].place == sentences[first].place - 1:
        first -= 1
    while last + 1 in chosen and sentences[last + 1].place == sentences[last].place + 1:
        last += 1
    quote = " ".join(one.text for one in sentences[first : last + 1])
    return replace(fact, text=text, quote=quote)


_AND: Final = re.compile(
    r"(?:,? and|;|, but)\s+(?=(?:I(?:['’]m| (?:always |usually |never |only )?"
    r"(?:am|work|live|prefer|use|have))|my|we|our|the \w+|always|never)\b)",
    re.IGNORECASE,
)
"""Between two statements, each with a subject of its own."""


def split_clauses(one: TypedSentence) -> list[TypedSentence]:
    """A sentence, or its two halves where each is a fact of its own: two facts are two memories."""
    for found in _AND.finditer(one.core):
        left, right = one.core[: found.start()], one.core[found.end() :]
        at = one.text.find(right)
        if at < 0 or one.text[at:].strip() != right.strip():
            continue
        halves = [
            replace(one, core=left, text=one.text[:at].rstrip()[: -len(found[0].strip())].rstrip(" ,;")),
            replace(one, core=right, text=one.text[at:], lead=""),
        ]
        kinds = [find_kind(half) for half in halves]
        if all(kind is not None and kind not in WEAK for kind in kinds):
            return halves
    return [one]


def _goes_on(one: TypedSentence, before: TypedSentence | None) -> bool:
    """True if a sentence says more of what the one right before it was about."""
    if before is None or (one.number, one.place) != (before.number, before.place + 1):
        return False
    if len(one.text) > LONGEST_MORE or _PRAISE.match(one.core) or find_secrets(one.text):
        return False
    return _MORE.match(one.core) is not None and len(find_subject_words(one.text)) >= FEWEST + 1


def find_subject_words(text: str) -> frozenset[str]:
    """The words that say what a statement is about."""
    return frozenset(find_terms(text)) - _EMPTY


def _forgotten_learning(one: TypedSentence) -> ExtractedFact | None:
    found = _FORGET.match(one.core)
    if found is None:
        return None
    text = next(part for part in found.groups() if part)
    return ExtractedFact(
        "remember", "project", text.rstrip(".。!！ "), one.text, one.day, one.number, forgets=True
    )


_FOR_TEAM: Final = re.compile(
    r"(?:(?:please )?(?:remember|note|save)(?: this| it)? )?for (?:the|our|my) (?:whole |entire )?team"
    r"(?:['’]s memory)?\s*[,:—-]?\s*(?:that\s+)?|(?:请?记住，?)?(?:给|为)(?:整个)?团队[：:，,]\s*",
    re.IGNORECASE,
)
_TEAM_AFTER: Final = re.compile(
    r",?\s+for (?:the|our|my) (?:whole |entire )?team(?=\W*$)|\bteam[- ]wide\b", re.IGNORECASE
)


def _kept(one: TypedSentence) -> ExtractedFact | None:
    """The fact in a sentence, if it is one that lasts. `for the team:` says whose it is."""
    if found := _FOR_TEAM.match(one.core):
        at = one.text.find(one.core[found.end() :][:8])
        rest = replace(one, core=one.core[found.end() :], lead=one.text[: max(0, at)].lower())
        fact = _own(rest) or (_remembered(replace(rest, core=f"remember that {rest.core}")))
        return replace(fact, team=True) if fact is not None else None
    fact = _own(one)
    return replace(fact, team=True) if fact is not None and _TEAM_AFTER.search(one.core) else fact


def _own(one: TypedSentence) -> ExtractedFact | None:
    if (made := _remembered(one) or _by_cue(one)) is None:
        return None
    if made.kind not in _ORDERS and _IN_THE_CODE.search(one.core):
        return None
    # a pair of Chinese characters says less than a word
    least = FEWEST + bool(_CJK.search(made.text) and not _LATIN.search(made.text))
    if len(find_subject_words(made.text)) < (FEWEST * 2 if made.kind == "fact" else least):
        return None
    if made.kind in ("plan", "decision", "event", "fact") and _POINTED.search(one.core):
        return None
    if _UNKIND.search(one.text) or find_secrets(one.text):
        return None
    return made


def _remembered(one: TypedSentence) -> ExtractedFact | None:
    """Whatever somebody asks to remember, unless the code says it already."""
    found = _REMEMBER.match(one.core)
    if found is None:
        return None
    text = _rest_of(one, found["text"] or found["zh"])
    if _IN_THE_CODE.search(text) or not is_statement(text):
        return None
    return _made(one, "remember", classify_memory(text), text)


def _rest_of(one: TypedSentence, tail: str) -> str:
    """The end of a sentence as it was typed, with its quotations."""
    start = one.text.find(tail[:8])
    return tail if start < 0 or one.text.endswith(tail) else one.text[start:]


def _by_cue(one: TypedSentence) -> ExtractedFact | None:
    kind = find_kind(one)
    if kind == "confirmation":
        return _confirmed(one)
    if not _CJK.search(one.core) and not _lasts(one, kind):
        return None
    made = kind or "fact"
    return _made(one, made, TYPE_OF[made], _statement(one)) if kind or not _CJK.search(one.core) else None


def find_kind(one: TypedSentence) -> Kind | None:
    """The kind of the first cue that a sentence has; None if it has none."""
    cues = CHINESE_CUES if _CJK.search(one.core) else CUES
    return next((cue.kind for cue in cues if _fits(cue, one)), None)


def _lasts(one: TypedSentence, kind: Kind | None) -> bool:
    """True if a sentence says something that lasts.

    Where somebody works on files that takes a cue. Elsewhere people speak of themselves all the time: a
    cue is enough in a plain sentence, and of others the worth decides.
    """
    if kind in _ORDERS or kind in ("pointer", "deadline"):
        return True
    explicit = kind is not None and kind not in WEAK and not is_of_today(one)
    if is_passing(one) or (one.working and not explicit):
        return False
    if one.working:
        return True
    if is_material(one):
        return False
    if explicit and kind == "decision" and _TOGETHER.match(one.core):
        return True
    if explicit and is_plain(one):
        return len(one.reply) < _SHORT_REPLY or compute_worth(one, kind) > BESIDE
    return not is_unclear(one) and compute_worth(one, kind) > LIMIT


_SHORT_REPLY: Final = 300  # Characters: so few take nothing up, and say nothing about what was said
_TOGETHER: Final = re.compile(r"(?:we|our team|the team)\b", re.IGNORECASE)
_FRAGMENT: Final = re.compile(
    r"(?:for \w+ing|since|because|given|having|using|starting|instead of|things like|as for"
    r"|like (?:that|the)|way (?:I|we)|that (?:I|we)|and|or|but|with|without|just \w+ing)\b",
    re.IGNORECASE,
)
"""The beginning of half a sentence."""
_VERBAL: Final = re.compile(
    r"\b(?:is|are|was|were|am|be|been|has|have|had|will|would|can|could|should|must|needs?|wants?|do|does"
    r"|did|goes|went|got|took|made|keeps?|starts?|works?|costs?|\w+ed|let['’]s|means?|fits?|includes?|makes?"
    r"|says?|seems?|sounds?|gets?|gives?|helps?|looks?|feels?|likes?|takes?|brings?|comes?|runs?|plays?|lives?"
    r"|leads?|happens?|covers?|shows?|saves?|adds?|\w{4,}ing)\b|['’](?:s|m|re|ve|ll|d)\b"
    r"|\bI\s+\w+|\bwe\s+\w+|:\s|\b\w{3,}s (?:from|at|in|on|to|for|with|by|the|an?|about)\b",
    re.IGNORECASE,
)
_ADDRESSED: Final = re.compile(
    r"\b(?:please|thanks?|thank you)\b|```|\b(?:can|could|would|will|let|need|want|tell|help|ask|if) you\b"
    r"|\byou (?:can|could|should|please)\b",
    re.IGNORECASE,
)
"""A request to the assistant, or a piece of code. `The plan you made` is neither."""


def is_unclear(one: TypedSentence) -> bool:
    """True for what cannot stand alone: half a sentence, a line of a dialogue, words to the assistant."""
    half = _FRAGMENT.match(one.core) or not _VERBAL.search(one.core) or _ADDRESSED.search(one.text)
    return bool(half or _NOBODY.match(one.core) or _SPEAKER.match(one.core) or _TASK.match(one.core))


def _fits(cue: MemoryCue, one: TypedSentence) -> bool:
    if cue.alone and one.working:
        return False
    found = cue.pattern.search(one.core)
    if found is None or (cue.unless and cue.unless.search(one.core)):
        return False
    if cue.kind not in _ORDERS and (_TASK.match(one.core) or _UNSURE.search(one.core[: found.start()])):
        return False
    if cue.kind == "correction":
        return _NO.match(one.lead or one.text) is not None
    if cue.kind == "detail":
        return _ASKED.search(one.answered) is not None
    if _SPEAKER.match(one.core):
        return False
    return cue.kind == "confirmation" or _NOBODY.match(one.core) is None


def _statement(one: TypedSentence) -> str:
    """The sentence without the words that lead in."""
    lead = len(one.lead)
    return one.text[lead:] if one.text[:lead].lower() == one.lead else one.text


def _made(one: TypedSentence, kind: Kind, type: Type, text: str) -> ExtractedFact:
    why = ""
    if type == "feedback":
        text, why = split_reason(_PLEASE.sub("", text, count=1) if _PLEASE.match(text) else text)
    elif kind in WEAK and not _CJK.search(text):
        text = trim_remarks(text)
    why = resolve_dates(why, one.day)
    return ExtractedFact(kind, type, rewrite_statement(text, one.day), one.text, one.day, one.number, why)


def _confirmed(one: TypedSentence) -> ExtractedFact | None:
    """What the assistant had said it did, where the person wants it so in future."""
    for sentence in split_sentences(one.answered[:4_000]):
        did = sentence.strip("*#>- ")
        if _BY_HAND.search(did) and not _ASKED.search(did) and len(did) <= 300:
            text = f"The user approves of this way of working: “{did}”"
            if _CJK.search(one.core):
                text = f"用户认可这样的做法：“{did}”"
            return ExtractedFact("confirmation", "feedback", text, one.text, one.day, one.number)
    return None


ALIKE: Final = 0.6
CLOSE: Final = 0.5  # The share of their words from which on two statements are, or may be, about the same
KNOWN: Final = 0.85  # The share of its words that stand in a memory from which on a statement is no news

_MANIFEST: Final = re.compile(
    r'<manifest folder="(?P<folder>[^"\n]+)">\n?(?P<lines>.*?)</manifest>', re.DOTALL
)
_LINE: Final = re.compile(r"- \[(?P<type>[\w-]+)\] (?P<file>.+?\.md) \((?P<day>[^()\n]*)\): (?P<text>.*)")
_SINCE: Final = re.compile(r'<since entry="(\d{1,9})"\s*/>')
_SESSION: Final = re.compile(r'<session id="([^"\n]*)"(?: date="([^"\n]*)")?')
_NUMBER: Final = re.compile(r"\d[\d.,:/-]*\d|\d")
_TURNED: Final = re.compile(
    r"\b(?:not|never|no|don['’]?t|doesn['’]?t|isn['’]?t|can['’]?t|cannot|without|stop|avoid|hates?"
    r"|dislikes?)\b|不|别|没|勿|讨厌",
    re.IGNORECASE,
)
_SUBJECT: Final = re.compile(
    r"(?P<subject>the user['’]s .{2,60}?|(?:the |our |their )?[\w' -]{3,60}?)\s+"
    r"(?:is|are|was|will be|moved|starts?|begins?|ends?|has moved|got moved|were)\b"
    r"|the user (?P<does>lives|works|is from|is based|uses|goes by)\b"
    r"|(?P<zh>用户的?\S{2,8}?|\S{2,12}?)(?:是|定在|改到|推迟到|提前到|安排在|为|在)",
    re.IGNORECASE,
)


class ManifestMemory(msgspec.Struct, frozen=True):
    """A memory as the manifest lists it."""

    type: str
    file: str
    description: str


class ExtractionOrder(msgspec.Struct, frozen=True):
    """The parameters of a directive to look back."""

    folder: str
    known: tuple[ManifestMemory, ...]
    since: int
    session: str
    date: str
    team: bool = False  # True if there is a folder that a team shares


def parse_extraction_order(body: str) -> ExtractionOrder | None:
    """The machine-readable part of a directive; None when it has none."""
    found = _MANIFEST.search(body)
    if found is None:
        return None
    lines = (_LINE.fullmatch(line.strip()) for line in found["lines"].split("\n"))
    since, session = _SINCE.search(body), _SESSION.search(body)
    return ExtractionOrder(
        unescape(found["folder"]),
        tuple(ManifestMemory(one["type"], one["file"], one["text"]) for one in lines if one),
        int(since[1]) if since else 0,
        unescape(session[1]) if session else "",
        (session[2] or "") if session else "",
        _TEAM_RULE in body,
    )


def compute_shared_subject(one: str, other: str) -> float:
    """The share of its subject that a text has in common with another, from 0 to 1."""
    left, right = find_subject_words(one), find_subject_words(other)
    both = len(left & right)
    return both / len(left | right) if both else 0.0


def is_known(statement: str, text: str) -> bool:
    """True if a text says this already: its words, its numbers, and yes or no."""
    said = find_subject_words(statement)
    there = len(said & find_subject_words(text))
    numbers = set(_NUMBER.findall(statement)) <= set(_NUMBER.findall(text))
    same_way = bool(_TURNED.search(statement)) == bool(_TURNED.search(text))
    return bool(said) and there >= KNOWN * len(said) and numbers and same_way


def is_news(statement: str, description: str) -> bool:
    """True if this says something else about what a memory is about."""
    if compute_shared_subject(statement, description) >= ALIKE:
        return True
    one, other = _subject(statement), _subject(description)
    return bool(one) and one == other


def can_be_known(statement: str, known: ManifestMemory) -> bool:
    """Whether it is worth reading the memory."""
    about = known.description
    return compute_shared_subject(statement, about) >= CLOSE or is_news(statement, about)


def _subject(text: str) -> frozenset[str]:
    """The subject of a statement that has one value at a time: a weight, a deadline, a place to live."""
    found = _SUBJECT.match(text)
    if found is None:
        return frozenset()
    if found["does"]:
        return frozenset({found["does"].lower()})
    return find_subject_words(found["subject"] or found["zh"] or "")


NOTHING: Final = "Nothing to save."
CALL: Final = 60  # Tokens of a call beside its text
FILLED: Final = 0.7  # The most of its room that a reply takes: tokens are estimated
DESCRIPTION: Final = 100
QUOTE: Final = 280  # Characters of a description, and of the words that a memory rests on
NAME: Final = 4  # Words of a name. It stands in the index twice, and the index holds 25,000 characters.
READS: Final = 5
MOST_OF: Final = 0.6  # The share of what is to be forgotten that a memory must say
AUTHOR: Final = "extraction"
TEAM: Final = "team/"
_TEAM_RULE: Final = "**Whose folder.**"  # Opens the paragraph of a directive about the team's folder
_NUMBERED: Final = re.compile(r"^ *\d+(?:\t|→)(.*)$")
_WHO: Final = re.compile(r"^(?:the user(?:['’]s)?\s+|用户的?)(?=\S)", re.IGNORECASE)
_REMARK: Final = re.compile(r"^\[.*\]$")

Blocks: TypeAlias = tuple[Block, ...]


def reply_to_extraction(conversation: OfflineConversation, directive: Directive) -> Blocks:
    """The next reply to a directive to look back."""
    asked, ask = parse_extraction_order(directive.body), find_ask(conversation)
    if asked is None or ask is None:
        return _said("There is no manifest in this directive, so nothing was saved.")
    if "Write" not in conversation.tools:
        return _said("There is no Write here, so nothing was saved.")
    made = list(iterate_calls(conversation, ask.at))
    written = [one for one in made if one.use.name == "Write"]
    found = _news(extract_facts(find_typed_sentences(conversation, asked.since, ask.at)), asked)
    close = _close(found, asked)
    place = blake2b(directive.id.encode("utf-8"), digest_size=4).hexdigest()
    if close and not made and "Read" in conversation.tools:
        return tuple(
            ToolUse(f"toolu_off_recall_{place}_{n}", "Read", {"file_path": _path(asked, one.file)})
            for n, one in enumerate(close)
        )
    drafts = list(_drafts(found, asked, _read(made, asked)))[len(written) :]
    if not drafts:
        return _said(_reported(written) if written else NOTHING)
    texts = ((file, strip_half_characters(data.decode("utf-8", "replace"))) for file, data in drafts)
    writes = [
        ToolUse(
            f"toolu_off_learn_{place}_{len(written) + n}",
            "Write",
            {"file_path": _path(asked, file), "content": text},
        )
        for n, (file, text) in enumerate(texts)
    ]
    return tuple(writes[: _count_fitting(writes, conversation.room)])


def _count_fitting(writes: Sequence[ToolUse], room: int) -> int:
    """The number of calls for which there is room in one reply: one at least."""
    used = 0
    for number, write in enumerate(writes):
        used += estimate_tokens(str(write.input)) + CALL
        if room and number and used > FILLED * room:
            return number
    return len(writes)


def _said(text: str) -> Blocks:
    return (Text(strip_half_characters(text)),)


def _path(asked: ExtractionOrder, file: str) -> str:
    return str(PurePath(asked.folder) / file)


def _reported(written: Sequence[PastCall]) -> str:
    done = [PurePath(str(one.use.input.get("file_path", ""))).name for one in written if not one.failed]
    failed = len(written) - len(done)
    count = f"{len(done)} memor{'y' if len(done) == 1 else 'ies'}"
    told = f"Saved {count}: {', '.join(done)}." if done else "Saved nothing."
    return f"{told} {failed} not saved." if failed else told


# --- what is new ----------------------------------------------------------------------------------------


def _news(found: Sequence[ExtractedFact], asked: ExtractionOrder) -> list[ExtractedFact]:
    """Without what a description says already; to forget what nobody knows is no news either."""
    return [
        one
        for one in found
        if (one.forgets and _named(one, asked))
        or not (one.forgets or any(is_known(one.text, known.description) for known in asked.known))
    ]


def _named(one: ExtractedFact, asked: ExtractionOrder) -> ManifestMemory | None:
    """The memory that somebody wants forgotten: the one that has most of the words, if one does."""
    said = find_subject_words(one.text)
    ranked = [
        (len(said & find_subject_words(f"{known.file.removesuffix(ENDING)} {known.description}")), known)
        for known in asked.known
        if not known.file.startswith(TEAM)
    ]
    count, best = max(ranked, default=(0, None), key=lambda rank: rank[0])
    return best if count >= max(FEWEST, MOST_OF * len(said)) else None


def _close(found: Sequence[ExtractedFact], asked: ExtractionOrder) -> list[ManifestMemory]:
    """The memories that have to be read before anything is written."""
    wanted: dict[str, ManifestMemory] = {}
    for one in found:
        if one.forgets:
            close = [named] if (named := _named(one, asked)) else []
        else:
            own = (known for known in asked.known if not known.file.startswith(TEAM))
            close = [known for known in own if can_be_known(one.text, known)]
        wanted |= {known.file: known for known in close}
    return list(wanted.values())[:READS]


def _read(made: Sequence[PastCall], asked: ExtractionOrder) -> dict[str, Topic]:
    topics: dict[str, Topic] = {}
    for one in made:
        if one.use.name == "Read" and one.result is not None and not one.failed:
            path = str(one.use.input.get("file_path", ""))
            for known in asked.known:
                if _path(asked, known.file) == path:
                    topics[known.file] = read_topic(_unnumbered(one.result.text), known.file)
    return topics


def _unnumbered(text: str) -> bytes:
    """A file from the page that Read shows of it."""
    lines = [_NUMBERED.match(line) for line in text.split("\n") if not _REMARK.match(line)]
    return ("\n".join(line[1] for line in lines if line) + "\n").encode("utf-8", "replace")


# --- what is written ------------------------------------------------------------------------------------


def _drafts(
    found: Sequence[ExtractedFact], asked: ExtractionOrder, read: dict[str, Topic]
) -> Iterator[tuple[str, bytes]]:
    """The files to write: each new memory, and the whole of each one that has changed."""
    taken = {make_file_key(known.file) for known in asked.known}
    done: set[str] = set()
    for one in found:
        if one.forgets:
            known = _named(one, asked)
            if known and known.file in read and known.file not in done:
                done.add(known.file)
                yield known.file, _forgotten(one, read[known.file], asked)
            continue
        old = next((t for t in read.values() if is_news(one.text, t.description)), None)
        if any(is_known(one.text, f"{t.description}\n{t.body}") for t in read.values()):
            continue
        if old is not None and old.file not in done and not explain_bad_file(old.file):
            done.add(old.file)
            yield old.file, _changed(one, old, asked)
        elif old is None:
            name = "-".join(make_memory_name(_WHO.sub("", one.text)).split("-")[:NAME])
            shared = TEAM if one.team and asked.team and one.type != "user" else ""
            file = shared + choose_file(name, taken)
            taken.add(make_file_key(file))
            yield file, _new(one, file, asked)


def _new(one: ExtractedFact, file: str, asked: ExtractionOrder) -> bytes:
    return encode_new_topic(
        file,
        name=file.removesuffix(ENDING),
        description=shorten_text(one.text, DESCRIPTION),
        type=one.type,
        body=_body(one),
        origin=_origin(one, asked),
    )


def _changed(one: ExtractedFact, old: Topic, asked: ExtractionOrder) -> bytes:
    """The new fact in place of the old one, which the history keeps: a reader should find one answer."""
    return change_topic(
        old, description=shorten_text(one.text, DESCRIPTION), body=_body(one), origin=_origin(one, asked)
    )


def _forgotten(one: ExtractedFact, old: Topic, asked: ExtractionOrder) -> bytes:
    """Nothing of what it said stays in the file. Removing files is not ours here."""
    day = one.day or asked.date
    text = f"Withdrawn{' on ' + day if day else ''} at the request of the user."
    body = f"{text}\n\n> {shorten_text(one.quote, QUOTE)}"
    return change_topic(old, description=text, body=body, origin=_origin(one, asked))


def _body(one: ExtractedFact) -> str:
    """The statement, for a rule its reason, and the words it rests on."""
    why = f"\n\n**Why:** {one.why}" if one.why else ""
    return f"{one.text}{why}\n\n> {shorten_text(one.quote, QUOTE)}"


def _origin(one: ExtractedFact, asked: ExtractionOrder) -> Origin:
    return Origin(asked.session, (), one.day or asked.date, AUTHOR)
