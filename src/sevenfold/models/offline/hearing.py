"""What a person said, sentence by sentence, and what of it can be a fact at all.

Questions, requests, hypotheses, jokes, quotations, code and what was pasted in are no facts. Nor is
anything that a tool, a file or the assistant said: only what was typed is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from sevenfold.messages import Message, Text
from sevenfold.models.directives import parse_directive
from sevenfold.models.offline.lexing import LITERAL, lex
from sevenfold.models.offline.view import Conversation, split_added, typed_text

LONGEST: Final = 4_000
"""Characters of a message; of a longer one, much was not typed but pasted."""
SHORT: Final = 800
PER_PERSON: Final = 250
"""In so many characters of what people type about themselves stands at least one `I`."""
LONGEST_SENTENCE: Final = 600
SHORTEST: Final = 6
_DATE: Final = re.compile(r"^Date: (\d{4}-\d{2}-\d{2})\s*$", re.MULTILINE)
_IN_REPOSITORY: Final = re.compile(r"^Git branch: (?!none\b)\S", re.MULTILINE)
_GO_ON: Final = "Your last reply was cut off at its length limit."
_SECTION: Final = re.compile(
    r"^[#*\d.):\s]*(?:primary request|files and code|errors and fix|pending task|current work)",
    re.IGNORECASE | re.MULTILINE,
)
_NO_PERSON: Final = re.compile(
    r"<command-(?:name|message|args)>|<local-command|<bash-(?:input|stdout)|\[Request interrupted"
    r"|^Caveat: The messages below|^This session is being continued",
    re.MULTILINE,
)
"""What other programs put into a conversation in the person's name."""
_PLAYED: Final = re.compile(
    r"\b(?:act as|pretend|role-?play|you are (?:now )?(?:an?|the)\b|you will be|your (?:role"
    r"|persona) is"
    r"|imagine (?:you|that you)|in the (?:voice|style) of|write (?:a|an|me)\b.{0,40}\b(?:story"
    r"|poem|essay"
    r"|script|letter|email|speech|song|article|blog|dialogue|scene))"
    r"|扮演|假装你|你是一[个名位]|写一[篇首封段]",
    re.IGNORECASE,
)
"""A part to play, or a text to write: who says `I` in it is nobody."""
_REPORTED: Final = re.compile(
    r"\b(?:(?:the |this |that |an? |its |his |her |their )(?:\w+ )?(?:page|docs?|documentation"
    r"|article|"
    r"web ?site|site|readme|e-?mail|post|blog|thread|comment|ticket|issue|message|error|log|output"
    r"|book"
    r"|paper|file|prompt|text|note|paragraph)|he|she|they|it|someone|somebody|people|everyone) "
    r"(?:also |just |then |always )?(?:says?|said|tells?|told|reads?|states?|stated|claims?"
    r"|claimed|writes?|wrote"
    r"|suggests?|recommends?|mentions?)\b"
    r"|\baccording to\b|\bquote\b"
    r"|(?:他|她|他们|文档|网页|页面|文章|邮件|报错|日志)(?:里|中|上)?(?:说|写|提到|显示|建议)",
    re.IGNORECASE,
)
_ASKS: Final = re.compile(
    r"(?:can|could|would|will|do|does|did|is|are|am|was|were|should|shall|may|might|have|has) "
    r"(?:you|we|i|it|this|that|there|the|they|he|she|my|our|these|those|any)\b"
    r"|(?:who|whom|whose|where|when|why|how|which|what)\b(?! i (?:want|need|prefer|like|care)\b)"
    r"|(?:请问|什么|怎么|为什么|哪|谁|多少|是否|能不能|可不可以|有没有)",
    re.IGNORECASE,
)
_QUESTION: Final = re.compile(r"[?？:：]\s*$|(?:吗|呢|么)[。.!！]?\s*$")
_SUPPOSED: Final = re.compile(
    r"(?:if|suppose|supposing|imagine|assuming|assume|let['’]?s say|say,|in case|unless|what if)\b"
    r"|(?:如果|假如|假设|要是|万一|倘若|比如|例如)|for example\b|e\.g\.",
    re.IGNORECASE,
)
_JOKED: Final = re.compile(
    r"\b(?:just kidding|kidding|jk|lol|lmao|rofl|haha+|hehe+)\b|(?<=\s)/s\s*$"
    r"|[😂🤣😜😉]|开玩笑|哈哈|逗你|嘿嘿",
    re.IGNORECASE,
)
_WITHDRAWN: Final = re.compile(
    r"^(?:(?:no|oh|wait|sorry|actually|hmm)[,.\s]+)*(?:scratch that|never ?mind|forget (?:it|that"
    r"|what I said)|ignore (?:that|what I (?:just )?said)"
    r"|I(?:['’]m| was)? (?:just )?(?:kidding|joking)|just kidding|strike that|I take (?:it"
    r"|that) back)\b|^(?:算了|当我没说|开玩笑的|刚才说的不算)",
    re.IGNORECASE,
)
_LEAD: Final = re.compile(
    r"(?:(?:ok(?:ay)?|yes|yeah|yep|no|nope|well|so|oh|ah|hmm+|um|uh|hi|hello|hey|thanks|thank you"
    r"|great|good|sure"
    r"|right|alright|all right|perfect|exactly|actually|honestly|basically|also|and|but|anyway"
    r"|by the way|btw|fyi"
    r"|just so you know|for (?:the record|context|your information)|to be (?:honest|clear|fair)"
    r"|you know"
    r"|look|listen|sorry|please note|note that|sigh|fine|again|first(?: of all)?|now|plus|besides"
    r"|still|then"
    r"|of course|indeed|frankly|personally)\b[\s,.:;!…—–-]+)+",
    re.IGNORECASE,
)
_LEAD_ZH: Final = re.compile(
    r"(?:好的?|嗯+|对|是的|哦|啊|另外|还有|其实|顺便(?:说一下|说)?|而且|不过|那么?|然后|首先|谢谢你?|你好)[，,。！!、\s]+"
)
_OWN: Final = re.compile(r"\b(?:I|my|me|we|our|us)\b|我", re.IGNORECASE)
_WEIRD: Final = re.compile(r"[{}<>|\\=;$]|::|->|\t")
_LITERAL: Final = re.compile(LITERAL)


class Heard(msgspec.Struct, frozen=True):
    """One sentence that somebody typed."""

    number: int
    """Of the message in the conversation, counted from 1."""
    day: str
    """On which it was said, as `2026-11-03`; empty when the conversation does not tell."""
    text: str
    """As it was typed."""
    core: str
    """Without quotations, code, and words such as `Okay,` that lead in."""
    lead: str
    """What led in: a `no,` or a `yes,` may matter."""
    answered: str = ""
    """What the assistant had said before."""
    working: bool = False
    """Whether the assistant works on files here, so that most of what is said is about the task."""
    place: int = 0
    """Of the sentence in its message."""

    @property
    def withdraws(self) -> bool:
        """Whether it takes back what was said just before."""
        return bool(_WITHDRAWN.match(self.core) or _WITHDRAWN.match(self.text))


def heard(conversation: Conversation, since: int, until: int) -> Iterator[Heard]:
    """The sentences of the messages after so many, before the one at `until`."""
    day, answered = "", ""
    working = is_working(conversation, until)
    for at, message in enumerate(conversation.messages[:until]):
        if message.role == "assistant":
            answered = message.text or answered
            continue
        day = day_told(message) or day
        if at < since or at in conversation.added:
            continue
        text = _typed(message)
        for place, piece, lead, core in sentences_of(text):
            yield Heard(at + 1, day, piece, core, lead, answered, working, place)
        answered = "" if text else answered


def is_working(conversation: Conversation, until: int) -> bool:
    """Whether this is in a repository, or the assistant has run or changed anything."""
    if any(_IN_REPOSITORY.search(part) for part in _contexts(conversation, until)):
        return True
    return any(
        use.name in ("Bash", "Edit", "Write", "MultiEdit", "NotebookEdit")
        for message in conversation.messages[:until]
        for use in message.tool_uses
    )


def _contexts(conversation: Conversation, until: int) -> Iterator[str]:
    """What our own opening and news of the surroundings say."""
    for message in conversation.messages[:until]:
        for block in message.content:
            if message.role == "user" and isinstance(block, Text) and "<context>" in block.text:
                for part in split_added(block.text)[1]:
                    if part.tag == "context":
                        yield part.text


def day_told(message: Message) -> str:
    """The day that our own opening or news of the surroundings name."""
    for block in message.content:
        if isinstance(block, Text) and "Date: " in block.text:
            for part in split_added(block.text)[1]:
                if part.tag == "context" and (found := _DATE.search(part.text)):
                    return found[1]
    return ""


def _typed(message: Message) -> str:
    """What a person typed, if a person typed it."""
    if any(isinstance(b, Text) and parse_directive(b.text) for b in message.content):
        return ""
    text = typed_text(message)
    strange = _NO_PERSON.search(text) or text.startswith(_GO_ON)
    if strange or len(_SECTION.findall(text)) >= 3:
        return ""
    return text if not is_pasted(text) else text[:LONGEST].split("\n", 1)[0]


def is_pasted(text: str) -> bool:
    """Whether most of it was not typed: it is long, or not short and nobody in it says `I`."""
    if len(text) <= SHORT:
        return False
    own = len(_OWN.findall(text))
    return len(text) > LONGEST or own * PER_PERSON < len(text)


def sentences_of(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Each sentence that may state something: as typed, what leads in, and the rest without quotations."""
    if not text or _PLAYED.search(text):
        return
    lexed = lex(text)
    for place, piece in enumerate(lexed.pieces()):
        raw = " ".join(lexed.raw(piece).split())
        core = " ".join(_LITERAL.sub(" … ", piece).split())
        lead = ""
        if found := _LEAD.match(core) or _LEAD_ZH.match(core):
            lead, core = found.group(), core[found.end() :]
        least = SHORTEST if core.isascii() else SHORTEST // 2
        fits = least <= len(core) <= len(raw) <= LONGEST_SENTENCE
        if fits and (states(core) or _WITHDRAWN.match(core)):
            yield place, raw, lead.lower(), core


def states(core: str) -> bool:
    """Whether a sentence can be a statement or an order, meant as it is said."""
    if _QUESTION.search(core) or _ASKS.match(core) or _SUPPOSED.match(core):
        return False
    if _JOKED.search(core) or _REPORTED.search(core):
        return False
    return len(_WEIRD.findall(core)) < 2
