"""Takes a request apart for the offline engine: literals out of the way, then one piece per step.

A literal (a fenced block, `code`, a "quotation", a `$ command` line) is replaced by a mark, so that
nothing inside it is mistaken for a word of the request.

It also splits texts into sentences and terms, and finds the sentences of a person that can be facts.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from sevenfold.core.messages import Message, Text, parse_directive
from sevenfold.layers.shared.side_work import find_told_calls
from sevenfold.memory.dates.relative import make_dates_absolute
from sevenfold.memory.guard.own_words import split_pasted_text
from sevenfold.memory.text.words import CJK, make_word_set, stem_word, tokenize_text
from sevenfold.offline.conversation import OfflineConversation, extract_typed_text, split_added

MARK: Final = "\ufffc"
LITERAL: Final = rf"{MARK}\d+{MARK}"  # A pattern: one literal in a skeleton
MOST_PIECES: Final = 40  # A request with more lines than this is a text with a request on top of it

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
_KINDS: Final[dict[str, Kind]] = {"fence": "fence", "shell": "shell", "code": "code", "odd": "odd"}
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
"""The beginning of the next thing that is wanted."""
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


class LiteralText(msgspec.Struct, frozen=True):
    """Something to be taken word for word."""

    raw: str
    inner: str
    kind: Kind


class LexedRequest(msgspec.Struct, frozen=True):
    """A request with its literals taken out."""

    skeleton: str
    literals: tuple[LiteralText, ...]

    def alone(self, part: str) -> LiteralText | None:
        """The literal that a part of the skeleton is, if it is nothing else."""
        part = part.strip()
        return self.literals[int(part.strip(MARK))] if _ONE.fullmatch(part) else None

    def raw(self, part: str) -> str:
        """A part of the skeleton as it was written."""
        return _ONE.sub(lambda m: self.literals[int(m[0].strip(MARK))].raw, part)

    def value(self, part: str) -> str:
        """The meaning of a part: without its quotes if it is one literal, else as it was written."""
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


def lex_request(text: str) -> LexedRequest:
    literals: list[LiteralText] = []

    def take(match: re.Match[str]) -> str:
        name = str(match.lastgroup) if match.lastgroup != "ticks" else "fence"
        inner = match[name] or ""
        literals.append(LiteralText(match[0], inner, _KINDS.get(name, "quote")))
        return f"{MARK}{len(literals) - 1}{MARK}"

    return LexedRequest(_LITERALS.sub(take, text), tuple(literals))


def split_soft_parts(piece: str) -> list[str]:
    """A sentence at each "then", and at each "and" or comma before a verb we know."""
    return [part for part in _SOFT.split(piece) if _says_something(part)] or [piece]


def _says_something(part: str) -> bool:
    return re.search(r"[^\W_]", part) is not None or MARK in part


LONGEST_SENTENCE: Final = 400
_CJK_CHARACTER = re.compile(rf"[{CJK}]")
_LATIN_WORD = re.compile(r"[A-Za-z]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])[ \t]+(?=\S)|(?<=[。！？；])")


_STOP: Final = make_word_set(
    """a about after again all also am an and any are aren as at be been before being but by can could
    d did didn do does doesn doing don for from had has have he her here him his how i if in into is
    isn it its just let ll m may me might more most must my no not now of off ok on once one only or
    other our out over own per please re s said same say says shall she should so some such t tell
    than thank thanks that the their them then there these they this those through to too up us ve
    very was wasn we were what when where which while who whom whose why will with would yes you
    your"""
)
_WEAK: Final = make_word_set(
    """agree answer ask call choose chose chosen contain decide decided explain find found get give
    given go know like list look made make mean mention name need new old pick read remember report
    show set settle something talk thing think told try use used using want work write written wrote"""
)
_CJK_STOP: Final = re.compile(
    "为什么|什么时候|什么|哪一个|哪一些|哪个|哪些|哪里|哪儿|多少|几个|怎么样|怎么|如何|是否|是不是|"
    "告诉我|告诉|请问|关于|我们|你们|他们|咱们|刚才|之前|以前|现在|一下|"
    "[的了吗呢吧啊是我你他她它这那在有和与或把将被就都也还很用说过谁请叫为选]"
)


def find_terms(text: str) -> list[str]:
    """The subject of a text: the stems of its words and its pairs of characters."""
    return [_SHORT.get(term, term) for term in tokenize_text(text, _STOP, _CJK_STOP)]


_PAIRS: Final = """
    authentication auth, configuration config, database db, directory dir, documentation doc,
    environment env, repository repo, lives live
    """
_SHORT: Final = {stem_word(one.split()[0]): stem_word(one.split()[1]) for one in _PAIRS.split(",")}
"""Long forms that people and files shorten, and the verb that recall takes for the plural of `life`."""
_WEAK_STEMS: Final = frozenset(map(stem_word, _WEAK))


def weigh_question_terms(question: str) -> dict[str, bool]:
    """The terms of a question, and whether each says what it is about rather than what is asked of it."""
    found = {term: term not in _WEAK_STEMS for term in find_terms(question)}
    return found if any(found.values()) else dict.fromkeys(found, True)


def split_sentences(text: str) -> Iterator[str]:
    """Lines and sentences, none of them longer than can be quoted."""
    for line in text.splitlines():
        for sentence in _SENTENCE_END.split(line):
            yield from _bounded(sentence.strip())


def _bounded(sentence: str) -> Iterator[str]:
    start = 0
    while len(sentence) - start > LONGEST_SENTENCE:
        end = sentence.rfind(" ", start + LONGEST_SENTENCE // 2, start + LONGEST_SENTENCE)
        end = end if end > 0 else start + LONGEST_SENTENCE
        yield sentence[start:end].strip()
        start = end
    if sentence[start:].strip():
        yield sentence[start:].strip()


def is_chinese(text: str) -> bool:
    """True if a text is to be answered in Chinese: by how it begins, or by what most of it is."""
    characters = len(_CJK_CHARACTER.findall(text))
    first = re.search(rf"[{CJK}A-Za-z]", text)
    begins = bool(first and _CJK_CHARACTER.match(first[0]))
    return begins or characters > len(_LATIN_WORD.findall(text))


LONGEST: Final = 4_000  # Characters of a message; of a longer one, much was not typed but pasted
SHORT: Final = 800
PER_PERSON: Final = 250
"""In so many characters of what people type about themselves stands at least one `I`."""
LONGEST_SENTENCE_HEARING: Final = 600
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
"""Texts that other programs put into a conversation in the person's name."""
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


class TypedSentence(msgspec.Struct, frozen=True):
    """One sentence that somebody typed."""

    number: int  # Of the message in the conversation, counted from 1
    day: str  # On which it was said, as `2026-11-03`; empty when the conversation does not tell
    text: str  # As it was typed
    core: str  # Without quotations, code, and words such as `Okay,` that lead in
    lead: str  # The words that lead in: a `no,` or a `yes,` may matter
    answered: str = ""  # The assistant's words before it
    working: bool = False
    """True if the assistant works on files here, so that most of what is said is about the task."""
    place: int = 0  # Of the sentence in its message
    message: str = ""  # All that was typed in its message
    opening: str = ""  # The first that was typed in the conversation
    reply: str = ""  # The assistant's words after its message: what is taken up there mattered
    last: int = 0  # The place of the last statement of its message

    @property
    def withdraws(self) -> bool:
        """True if it takes back what was said just before."""
        return bool(_WITHDRAWN.match(self.core) or _WITHDRAWN.match(self.text))


def find_typed_sentences(
    conversation: OfflineConversation, since: int, until: int
) -> Iterator[TypedSentence]:
    """The sentences of the messages after so many, before the one at `until`."""
    day, answered, opening = "", "", ""
    working = is_working(conversation, until)
    for at, message in enumerate(conversation.messages[:until]):
        if message.role == "assistant":
            answered = message.text or answered
            continue
        day = find_told_day(message) or day
        if at in conversation.added:
            continue
        text = _typed(message)
        opening = opening or text
        if at < since:
            continue
        stated = list(split_statements(text))
        after = conversation.messages[at + 1 : until] if stated else ()
        reply = next((one.text for one in after if one.role == "assistant" and one.text), "")
        for place, raw, core, lead in stated:
            own = TypedSentence(at + 1, day, raw, core, lead, answered, working, place, text, opening)
            yield replace(own, reply=reply, last=stated[-1][0])
        answered = "" if text else answered


def is_working(conversation: OfflineConversation, until: int) -> bool:
    """True if this is in a repository, or the assistant has run or changed anything."""
    if any(_IN_REPOSITORY.search(part) for part in _contexts(conversation, until)):
        return True
    return any(
        name in ("Bash", "Edit", "Write", "MultiEdit", "NotebookEdit")
        for message in conversation.messages[:until]
        if message.role == "assistant"
        for name in (*(use.name for use in message.tool_uses), *find_told_calls(message.text))
    )


def _contexts(conversation: OfflineConversation, until: int) -> Iterator[str]:
    """The texts of our own opening and of news of the surroundings."""
    for message in conversation.messages[:until]:
        for block in message.content:
            if message.role == "user" and isinstance(block, Text) and "<context>" in block.text:
                for part in split_added(block.text)[1]:
                    if part.tag == "context":
                        yield part.text


def find_told_day(message: Message) -> str:
    """The day that our own opening or news of the surroundings name."""
    for block in message.content:
        if isinstance(block, Text) and "Date: " in block.text:
            for part in split_added(block.text)[1]:
                if part.tag == "context" and (found := _DATE.search(part.text)):
                    return found[1]
    return ""


def _typed(message: Message) -> str:
    """The text that a person typed; empty if a program wrote it."""
    if any(isinstance(b, Text) and parse_directive(b.text) for b in message.content):
        return ""
    text = split_pasted_text(extract_typed_text(message)).own
    strange = _NO_PERSON.search(text) or text.startswith(_GO_ON)
    if strange or len(_SECTION.findall(text)) >= 3:
        return ""
    return text if not is_pasted(text) else text[:LONGEST].split("\n", 1)[0]


def is_pasted(text: str) -> bool:
    """True if most of it was not typed: it is long, or not short and without an `I`."""
    if len(text) <= SHORT:
        return False
    own = len(_OWN.findall(text))
    return len(text) > LONGEST or own * PER_PERSON < len(text)


def split_statements(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Each sentence that may state something: as typed, without quotations, and what led in."""
    if not text or _PLAYED.search(text):
        return
    lexed = lex_request(text)
    for place, piece in enumerate(lexed.pieces()):
        raw = " ".join(lexed.raw(piece).split())
        core = " ".join(_LITERAL.sub(" … ", piece).split())
        lead = ""
        if found := _LEAD.match(core) or _LEAD_ZH.match(core):
            lead, core = found.group(), core[found.end() :]
        least = SHORTEST if core.isascii() else SHORTEST // 2
        fits = least <= len(core) <= len(raw) <= LONGEST_SENTENCE_HEARING
        if fits and (is_statement(core) or _WITHDRAWN.match(core)):
            yield place, raw, core, lead.lower()


def is_statement(core: str) -> bool:
    """True if a sentence can be a statement or an order, meant as it is said."""
    if _QUESTION.search(core) or _ASKS.match(core) or _SUPPOSED.match(core):
        return False
    if _JOKED.search(core) or _REPORTED.search(core):
        return False
    return len(_WEIRD.findall(core)) < 2


# --- a sentence as a statement about its speaker --------------------------------------------------------

_ADVERB: Final = (
    r"(?:really|also|still|just|usually|always|often|mostly|generally|personally|actually|definitely"
    r"|absolutely|honestly|strongly|much|particularly|especially|currently|now|already|finally|recently"
    r"|totally|truly|simply|normally|typically|never|rarely|sometimes|only|successfully|officially"
    r"|probably|even|both)"
)
_WORD: Final = re.compile(r"\w+")
_CONTRACTED: Final = (
    (re.compile(r"\bI['’]m\b"), "the user is"),
    (re.compile(r"\bI am\b"), "the user is"),
    (re.compile(r"\bI['’]ve\b"), "the user has"),
    (re.compile(r"\bI['’]ll\b"), "the user will"),
    (re.compile(r"\bI['’]d\b(?=\s+(?:been|had|gone|done|\w+ed)\b)"), "the user had"),
    (re.compile(r"\bI['’]d\b"), "the user would"),
    (re.compile(r"\bI have\b"), "the user has"),
    (re.compile(rf"\bI((?:\s+{_ADVERB})*) (?:don['’]t|do not)\b"), r"the user\1 does not"),
    (re.compile(r"\bI do\b"), "the user does"),
    (re.compile(rf"\bI((?:\s+{_ADVERB})+) (?:am|['’]m)\b"), r"the user\1 is"),
    (re.compile(r"\bI haven['’]t\b"), "the user has not"),
)
_NUMERAL: Final = r"(?<!\b[Tt]ype )(?<!\b[Pp]art )(?<!\b[Pp]hase )(?<!\b[Cc]lass )(?<!\bWar )(?<!\bAct )"
"""Not behind these: there `I` is a number."""
_VERB: Final = re.compile(rf"{_NUMERAL}\bI((?:\s+{_ADVERB}\b)*+)\s+([a-z]+)\b(?!['’])")
_KEPT: Final = frozenset(
    _WORD.findall(
        "can could will would should must may might shall had was were did went got made took saw met "
        "bought found said told gave came ran left kept felt thought knew began chose spent sent "
        "wrote read built grew paid won lost hit quit set put cut let led drove flew ate drank "
        "slept taught caught brought fell held heard meant understood cannot used and or but who"
    )
)
"""Verbs that look the same for everyone, or are past already."""
_IRREGULAR: Final = {"have": "has", "do": "does", "go": "goes", "am": "is", "be": "is"}
_PRONOUNS: Final = (
    (re.compile(r"^[Mm]e\b"), "The user"),
    (re.compile(r"\bmyself\b", re.IGNORECASE), "themselves"),
    (re.compile(r"\bmine\b", re.IGNORECASE), "theirs"),
    (re.compile(r"\bme\b"), "them"),
    (re.compile(rf"{_NUMERAL}\bI\b"), "the user"),
)
_MY: Final = re.compile(r"\bmy\b", re.IGNORECASE)
_THEM: Final = re.compile(r"\bthe user\b")
_BEGINNING: Final = re.compile(r"(?<=[.!?] )the user\b")
_BOLD: Final = re.compile(r"\*\*|__")
_CJK: Final = re.compile(f"[{CJK}]")
_MYSELF: Final = re.compile("(?<!自)我(?!们|們)")
_REASON: Final = re.compile(
    r",?\s+(?:because|since|so that|as (?:it|they|we|I)\b|otherwise|, or (?:else|it))\s*(?P<why>.{6,})$"
    r"|\s[—–-]\s+(?P<dash>(?:it|we|they|that|this|the)\b.{6,})$|[，,]?(?:因为|由于)(?P<zh>[^。]{3,})"
    r"|[，,](?P<or>(?:否则|不然|以免|免得)[^。]{2,})",
    re.IGNORECASE,
)
_SHORTEST_RULE: Final = 4
_OLD: Final = datetime.date(1990, 1, 1)


def rewrite_statement(sentence: str, day: str) -> str:
    """The statement: without markup, in the third person, with calendar dates where they are sure."""
    text = resolve_dates(_BOLD.sub("", sentence).strip(), day)
    text = _MYSELF.sub("用户", text) if _CJK.search(text) else _third(text)
    text = text[:1].upper() + text[1:]
    is_ended = text.endswith((".", "!", "?", "。", "！", "…", ":", "”", '"'))
    return text if is_ended else f"{text}{'。' if _CJK.search(text) else '.'}"


_FILLER: Final = (
    r"(?:really|definitely|just|actually|honestly|super|totally|absolutely|certainly|especially"
    r"|particularly|probably|basically|literally|simply|truly|finally|also|even|still|already|quite|pretty"
    r"|very|a bit|a little(?: bit)?|kind of|sort of|for sure|obviously|exactly)"
)
_REMARKS: Final = (
    re.compile(
        r"^(?:I (?:really |definitely |also |just )?(?:think|guess|believe|feel like|suppose|mean|would say"
        r"|thought)|I['’]m (?:thinking|guessing)|I['’]d say|it (?:looks|seems|sounds) like|I have to say"
        r"|to be honest)(?: that)?,?\s+(?=(?:I|we|my|our|the|a|an)\b|[A-Z])",
        re.IGNORECASE,
    ),
    re.compile(
        r"\s*(?:,|\s[–—-])\s+(?:(?:that|it|this)(?: really)? (?:makes|sounds|seems|feels|is|would|will"
        r"|looks)|that['’]s|it['’]s|which (?:is|are|sounds|seems|makes|feels|was|really|would)|if that"
        r"|just to|just in case|you know|I guess|I think|I suppose|thanks?|please)\b(?:\s+[\w'’-]+){0,7}"
        r"(?=[.!]*$)",
        re.IGNORECASE,
    ),
    re.compile(rf"\s+{_FILLER}(?=\s+\w)", re.IGNORECASE),
    re.compile(rf"^{_FILLER}\s+(?=\w)", re.IGNORECASE),
)


def trim_remarks(text: str) -> str:
    """A statement without what its speaker thinks of it: `I think`, `really`, `that makes sense`."""
    for remark in _REMARKS:
        text = remark.sub("", text)
    return text


def resolve_dates(text: str, day: str) -> str:
    """Against the day on which it was said."""
    try:
        said = datetime.date.fromisoformat(day)
    except ValueError:
        return text
    if said < _OLD:
        return text
    return make_dates_absolute(text, datetime.datetime.combine(said, datetime.time(12)).timestamp())


def split_reason(text: str) -> tuple[str, str]:
    """A rule, and the reason that it gives for itself if it does."""
    found = _REASON.search(text)
    if found is None or found.start() < _SHORTEST_RULE:
        return text, ""
    why = next(part.strip(" .。") for part in found.groups() if part)
    return text[: found.start()].rstrip(" ,，"), why


def _third(text: str) -> str:
    for pattern, words in _CONTRACTED:
        text = pattern.sub(words, text)
    text = _VERB.sub(lambda match: f"the user{match[1]} {_with_s(match[2])}", text)
    for pattern, words in _PRONOUNS:
        text = pattern.sub(words, text)
    return _BEGINNING.sub("The user", _possessive(text))


def _with_s(verb: str) -> str:
    if verb in _KEPT or (verb.endswith("ed") and not verb.endswith("eed")):
        return verb
    if verb in _IRREGULAR:
        return _IRREGULAR[verb]
    if verb.endswith(("s", "x", "z", "ch", "sh")):
        return f"{verb}es"
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return f"{verb[:-1]}ies"
    return f"{verb}s"


def _possessive(text: str) -> str:
    """`my` is `the user's` until somebody has been named; then it is `their`."""
    first, named = _MY.search(text), _THEM.search(text)
    if first and (named is None or first.start() < named.start()):
        text = _MY.sub("the user's", text, count=1)
    return _MY.sub("their", text)
