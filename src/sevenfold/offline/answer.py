"""The offline engine says what tools found, and answers a question by quoting the passage that fits best.

A passage is worth the rarity of the words it shares with the question; among equals the newest wins, so
that a correction beats what it corrects.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import nlargest
from math import log
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from sevenfold.core.messages import Text, ToolUse, parse_directive
from sevenfold.offline.conversation import (
    LETTER,
    NOTICE,
    AddedPart,
    OfflineConversation,
    PastCall,
    PersonRequest,
    is_piped,
    iterate_calls,
    split_added,
)
from sevenfold.offline.delegation import (
    answer_about_agent,
    extract_agent_answer,
    is_background_start,
    make_arrival,
)
from sevenfold.offline.language import find_terms, split_sentences, weigh_question_terms
from sevenfold.offline.phrases import PHRASES, Language, format_phrase, join_phrases
from sevenfold.offline.plan import describe_call, parse_request
from sevenfold.offline.steps import AGENT, AgentOffer, QuestionStep, ToolCallsStep

MOST_REPORTS: Final = 12
MOST_LINES: Final = 8
WIDEST: Final = 160
LONGEST_PATH: Final = 4_096
REASON: Final = 300
PAGE_NOTES: Final = 1_000
"""Characters at the end of what was read among which the tool says how much it left out."""

_NUMBERED = re.compile(r"^ *\d+(?:\t|→|\| ?)", re.MULTILINE)
_FOUND = re.compile(r"\d+[:-] ?")
_NOTE = re.compile(r"\[.*\]|--|")
_PAGE = re.compile(r"^\[lines [\d,]+-[\d,]+ of (?:more than )?[\d,]+", re.MULTILINE)
_MEMORY = re.compile(r"---\nname: |# \d{4}-\d{2}-\d{2}\n")
"""The beginning of a memory, and of the log of a day."""
_EXIT = re.compile(r"\bexit(?:ed)?(?:\s+with)?(?:\s+(?:code|status))?\s*[:=]?\s*(\d{1,3})\b", re.I)


def extract_shown_text(done: PastCall) -> str:
    """The text that a tool has shown: lines of a file without numbers, found lines each with its file."""
    text = done.result.text if done.result else ""
    if done.use.name == "Read":
        return _NUMBERED.sub("", text)
    return _with_paths(text) if done.use.name == "Grep" else text


def _with_paths(text: str) -> str:
    """Found lines under the name of their file become lines that begin with it."""
    lines: list[str] = []
    name, told = "", True
    for line in [*text.split("\n"), ""]:
        if name and _FOUND.match(line):
            lines.append(f"{name}:{line}")
            told = True
            continue
        if not told:
            lines.append(name)  # nothing was under it: it is what was found
        told = not line or bool(_NOTE.fullmatch(line))
        if told:
            lines.append(line)
        else:
            name = line
    return "\n".join(lines[:-1])


def report_call(language: Language, done: PastCall, *, brief: bool = False) -> str:
    if done.result is None:
        return format_phrase(language, "unanswered", what=describe_call(done.use))
    if done.failed:
        return _failure(language, done)
    if done.use.name == AGENT:
        return _agent(language, done, brief=brief)
    lines = [line.rstrip() for line in extract_shown_text(done).split("\n")]
    told = [line for line in lines if line and not _NOTE.fullmatch(line)]
    numbered = len(_NUMBERED.findall(done.result.text)) if done.use.name == "Read" else 0
    phrase = f"done_{done.use.name}" if f"done_{done.use.name}" in PHRASES else "done"
    if _is_memory(done.use):
        phrase = "done_memory"
    elif _is_forgotten(done):
        phrase = "done_forgotten"
    elif done.use.name == "Bash" and not told:
        phrase = "done_Bash_silent"
    elif done.use.name in ("Grep", "Glob") and _is_nothing(told):
        return _nothing(language, done.use, told, lines)
    size = _size(language, done, numbered or len(told))
    head = format_phrase(language, phrase, what=_object(done.use), lines=size)
    if brief or not told or done.use.name in ("Write", "Edit"):
        return head
    return f"{head}\n\n{_excerpt(lines)}"


def _agent(language: Language, done: PastCall, *, brief: bool) -> str:
    """The words of an agent as it said them: they are no output."""
    phrase = "begun_Agent" if is_background_start(done) else "done_Agent"
    head = format_phrase(language, phrase, what=_object(done.use))
    return head if brief else f"{head}\n\n{extract_agent_answer(done)}"


def _is_memory(use: ToolUse) -> bool:
    """True if a memory was written: a markdown file that begins with its name."""
    path, content = str(use.input.get("file_path")), str(use.input.get("content"))
    return use.name == "Write" and path.endswith(".md") and bool(_MEMORY.match(content))


def _is_forgotten(done: PastCall) -> bool:
    told = done.result.text if done.result else ""
    return done.use.name == "Write" and not done.use.input.get("content") and told[:8] == "Removed "


def _is_nothing(told: list[str]) -> bool:
    return not told or (len(told) == 1 and told[0].startswith("No "))


def _nothing(language: Language, use: ToolUse, told: list[str], lines: list[str]) -> str:
    """The thing looked for in vain, and what the tool adds about where it did not look."""
    notes = [line for line in lines if line.startswith("[")]
    names_it = language == "en" and told and str(use.input.get("pattern")) in told[0]
    head = told[0] if names_it else format_phrase(language, "no_matches", what=_object(use))
    return "\n".join([head, *notes])


def _size(language: Language, done: PastCall, count: int) -> str:
    """The number of lines; of a page of a file also the number of all."""
    text = done.result.text if done.result and done.use.name == "Read" else ""
    page = _PAGE.search(text, max(0, len(text) - PAGE_NOTES))
    if page is None:
        return format_line_count(language, count)
    whole = page[0].partition(" of ")[2]
    return format_phrase(language, "some_of_lines", n=f"{count:,}", all=whole)


def report_piped(language: Language, text: str) -> str:
    """The size and the beginning of what was piped in."""
    lines = [line.rstrip() for line in text.split("\n")]
    head = format_phrase(language, "piped", lines=format_line_count(language, len(lines)))
    return f"{head}\n\n{_excerpt(lines)}"


def report_calls(language: Language, done: tuple[PastCall, ...], *, brief: bool) -> list[str]:
    said = [report_call(language, each, brief=brief) for each in done[:MOST_REPORTS]]
    if len(done) > MOST_REPORTS:
        said.append(format_phrase(language, "more_calls", n=len(done) - MOST_REPORTS))
    return said


def format_line_count(language: Language, lines: int) -> str:
    return format_phrase(language, "one_line" if lines == 1 else "some_lines", n=f"{lines:,}")


def describe_calls(language: Language, uses: tuple[ToolUse, ...]) -> str:
    """Describe the calls that are being made; calls of the same tool are said together."""
    together: dict[str, list[str]] = {}
    for use in uses[:MOST_REPORTS]:
        together.setdefault(use.name, []).append(_object(use))
    said: list[str] = []
    for name, what in together.items():
        phrase = f"doing_{name}" if f"doing_{name}" in PHRASES else "doing_other"
        said.append(format_phrase(language, phrase, what=join_phrases(language, what)))
    return format_phrase(language, "doing", doing=join_phrases(language, said))


def _object(use: ToolUse) -> str:
    if f"done_{use.name}" not in PHRASES:
        return describe_call(use)
    return describe_call(use).removeprefix(use.name).strip() or use.name


def _failure(language: Language, done: PastCall) -> str:
    text = done.result.text.strip() if done.result else ""
    code = _EXIT.search(text[:REASON]) or _EXIT.search(text[-REASON:])
    if done.use.name != "Bash" or not code:
        why = text if len(text) <= REASON else text[:REASON] + "…"
        return format_phrase(language, "failed", what=describe_call(done.use), why=why)
    rest = text.removeprefix(code[0]).strip()
    head = format_phrase(language, "failed_with", what=describe_call(done.use), code=code[1])
    lines = [line.rstrip() for line in rest.split("\n")]
    return f"{head}\n\n{_excerpt(lines, tail=True)}" if rest else head


def _fits(line: str) -> bool:
    """A path is shown whole, however long: half of it is of no use."""
    is_path = line.startswith("/") and " " not in line and len(line) <= LONGEST_PATH
    return len(line) <= WIDEST or is_path


def _excerpt(lines: list[str], *, tail: bool = False) -> str:
    """The first lines; of what went wrong also the last, where the reason often stands."""
    if len(lines) > MOST_LINES:
        half = MOST_LINES // 2
        lines = [*lines[:half], "…", *lines[-half:]] if tail else [*lines[:MOST_LINES], "…"]
    shown = [line if _fits(line) else line[:WIDEST] + "…" for line in lines]
    ticks = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, ticks + 1)
    return "\n".join([fence, *shown, fence])


SCAN_HEAD: Final = 30_000
SCAN_TAIL: Final = 10_000  # Characters at the beginning and the end of one text that are looked at
SCAN_ALL: Final = 800_000  # Characters looked at in all, newest first
_TAGS: Final = re.compile(r"^</?memory\b[^\n]*>$", re.MULTILINE)
COVERAGE: Final = 0.4  # The share of a question's own words that a passage must have
CANDIDATES: Final = 40
MOST_QUOTES: Final = 5
AS_GOOD: Final = 0.95

Kind: TypeAlias = Literal["user", "model", "tool", "memory", "context", "piped", "peer", "agent"]
_ANYBODY: Final = AgentOffer(agents=True, messages=True)
"""For questions in which it only matters that work was handed on, not to whom."""


class AnswerPassage(msgspec.Struct, frozen=True):
    """A sentence, and where it stands."""

    text: str
    kind: Kind
    label: str
    at: int
    order: int
    heading: str = ""  # The heading it stands under, where there is one


class _AnswerShape(msgspec.Struct, frozen=True):
    """The kind of answer that a question asks for."""

    terms: dict[str, bool]
    number: bool
    kinds: frozenset[str]
    many: bool
    file: str


_NUMBER = re.compile(
    r"\b(?:ports?|numbers?|how (?:many|much|long|old|big)|when|versions?|dates?|years?|timeout|limit)\b"
    r"|多少|几|端口|版本|时候|日期|号码",
    re.I,
)
_I_SAID = re.compile(
    r"\b(?:did|have) i (?:say|said|tell|told|mention|write|ask)|我.{0,4}(?:说|提|讲)", re.I
)
_YOU_SAID = re.compile(
    r"\b(?:did|have) you (?:say|said|tell|answer|reply|write|do)|你.{0,4}(?:说|答)", re.I
)
_FILE = re.compile(r"(?<![\w./~-])[\w./~-]*\w\.[A-Za-z]\w{0,9}\b")
_DEFINES = re.compile(r"[:=]|\b(?:is|are|was|were|will be)\b|是|为|叫")
_HEADING = re.compile(r"\[[^\]]{1,80}\]$|[^.!?]{1,80}[:：]$")
_MARKDOWN_HEADING = re.compile(r"#+\s")
_LABEL = re.compile(r'\b(?:path|file|name|src)="([^"]+)"')


def find_answer(
    conversation: OfflineConversation, ask: PersonRequest, question: str, language: Language
) -> str | None:
    """The answer as a quotation, or None when nothing in view fits."""
    if done := _what_was_done(conversation, question):
        return "\n".join(f"- {line}" for line in done)
    if told := answer_about_agent(conversation, question, language):
        return told
    wanted = _wanted(question)
    passages = list(_passages(conversation, wanted.kinds))
    best = (
        _newest_words(passages, ask, question)
        or _from_file(wanted, passages, ask)
        or _best(wanted, passages, ask)
    )
    if not best:
        return None
    quotes = [_quote(language, "quote", best[0], passages)]
    for other in best[1:]:
        phrase = "earlier" if other.at < best[0].at else "also"
        quotes.append(_quote(language, phrase, other, passages))
    return "\n".join(quotes)


def has_own_words(question: str) -> bool:
    """True if the question has words of its own, or only asks what came out."""
    return bool(_NEWEST.fullmatch(question)) or any(
        term not in _ABOUT_RESULTS for term in weigh_question_terms(_FILE.sub(" ", question))
    )


_ABOUT_RESULTS: Final = frozenset(
    find_terms(
        "result output outcome file line content tell show print say happen many match begin contain "
        "summarize summarise describe explain mean hold 结果 输出 内容 总结 概括 说明 解释"
    )
)
_DEEDS: Final = {
    "Read": re.compile(r"\b(?:did|have) you (?:read|open)|你.{0,4}(?:读|打开)", re.I),
    "Bash": re.compile(r"\b(?:did|have) you (?:run|ran|execute)|你.{0,4}(?:运行|执行)", re.I),
    "Edit": re.compile(r"\b(?:did|have) you (?:edit|change)|你.{0,4}(?:修改|改)", re.I),
    "Write": re.compile(r"\b(?:did|have) you (?:write|written|create|save)|你.{0,4}(?:写|创建)", re.I),
}
_NEWEST = re.compile(
    r"\W*what (?:did i|have i|i)(?: just)? (?:say|said|ask|asked|tell you|told you)"
    r"(?: (?P<which>first|last|before|just now|earlier))?\W*"
    r"|我(?P<zh>刚才|最后|最先|一开始)?(?:都)?说了?(?:些)?什么\W*",
    re.I,
)


def _what_was_done(conversation: OfflineConversation, question: str) -> list[str]:
    """The calls that a question such as "which files did you read" asks for."""
    names = [name for name, pattern in _DEEDS.items() if pattern.search(question)]
    if not names:
        return []
    made = [d for d in iterate_calls(conversation) if d.use.name in names and not d.failed]
    return list(dict.fromkeys(describe_call(d.use) for d in made))[-MOST_QUOTES * 2 :]


def _newest_words(passages: list[AnswerPassage], ask: PersonRequest, question: str) -> list[AnswerPassage]:
    """The first or last words of the person, when the question is about nothing else."""
    which = _NEWEST.fullmatch(question)
    if not which:
        return []
    said = [p for p in passages if p.kind == "user" and p.at < ask.at]
    first = which["which"] == "first" or which["zh"] in ("最先", "一开始")
    return said[-1:] if first else said[:1]


def _wanted(question: str) -> _AnswerShape:
    kinds = frozenset({"user", "tool", "memory", "context", "piped", "peer", "agent"})
    if _I_SAID.search(question):
        kinds = frozenset({"user"})
    elif _YOU_SAID.search(question):
        kinds = frozenset({"model"})
    terms, number, file = weigh_question_terms(question), _NUMBER.search(question), _FILE.search(question)
    return _AnswerShape(terms, bool(number), kinds, len(kinds) == 1, file[0] if file else "")


def _from_file(
    wanted: _AnswerShape, passages: list[AnswerPassage], ask: PersonRequest
) -> list[AnswerPassage]:
    """The same question, asked of the file it names: the name is not what is looked for in it."""
    if not wanted.file:
        return []
    left = [term for term in wanted.terms if term not in find_terms(wanted.file)]
    inside = [p for p in passages if wanted.file in p.label]
    return _best(replace(wanted, terms=dict.fromkeys(left, True)), inside, ask)


def _best(wanted: _AnswerShape, passages: list[AnswerPassage], ask: PersonRequest) -> list[AnswerPassage]:
    """The best passage first, then those that are as good and say something else."""
    found = [(p, hits) for p in passages if (hits := _shared(wanted.terms, p))]
    frequency = Counter(term for _, hits in found for term in hits)
    rarity = {term: log(1 + len(passages) / n) for term, n in frequency.items()}

    def worth(hits: frozenset[str]) -> float:
        return sum(rarity[t] * (1.0 if wanted.terms[t] else 0.25) for t in hits)

    strong = {term for term, is_strong in wanted.terms.items() if is_strong}
    least = max(1.0, COVERAGE * len(strong))
    enough = [(worth(hits), p, hits) for p, hits in found if len(strong & hits) >= least]
    top = nlargest(CANDIDATES, enough, key=lambda e: (e[0], e[1].at, -e[1].order))
    scored = [(value * f, p) for value, p, hits in top if (f := _fitness(wanted, p, hits, ask))]
    scored.sort(key=lambda e: (-e[0], -e[1].at, e[1].order))
    chosen: dict[str, AnswerPassage] = {}
    for value, passage in scored:
        if value < scored[0][0] * (0.5 if wanted.many else AS_GOOD):
            break
        if not any(_same_source(passage, other) for other in chosen.values()):  # else it is outdated
            chosen.setdefault(passage.text, passage)
    return list(chosen.values())[: MOST_QUOTES if wanted.many else 2]


def _same_source(passage: AnswerPassage, other: AnswerPassage) -> bool:
    """True if one is a later look at the same place of the same file or command."""
    same = (passage.kind, passage.label, passage.heading) == ("tool", other.label, other.heading)
    return same and passage.at != other.at


def _shared(wanted: dict[str, bool], passage: AnswerPassage) -> frozenset[str]:
    """The question's words that a passage has; those of its heading count too, but not alone."""
    lower = passage.text.lower()
    if not any((term[:-1] if len(term) > 2 else term[:1]) in lower for term in wanted):
        return frozenset()  # cheap, and true of most
    hits = frozenset(term for term in find_terms(passage.text) if term in wanted)
    if not hits or not passage.heading:
        return hits
    return hits | {term for term in find_terms(passage.heading) if term in wanted}


def _fitness(
    wanted: _AnswerShape, passage: AnswerPassage, hits: frozenset[str], ask: PersonRequest
) -> float:
    """Rate a passage as an answer. Questions and requests do not answer."""
    fitness = {"user": 1.15, "memory": 1.1}.get(passage.kind, 1.0)
    if passage.kind == "user":
        steps = parse_request(passage.text, _ANYBODY)
        if any(isinstance(step, QuestionStep) for step in steps):
            return 0.0
        asked = {call.name for step in steps if isinstance(step, ToolCallsStep) for call in step.calls}
        if asked - {"Write", "Edit"}:
            return 0.0
        fitness *= 0.5 if asked else 1.0  # what was to be written may say it
    new = passage.at > ask.at or (passage.kind == "piped" and passage.at == ask.at)
    if new:  # what was just fetched or piped in is meant
        fitness *= 1.3
    if wanted.number and re.search(r"\d", passage.text):
        fitness *= 1.4
    subject = _DEFINES.split(passage.text, maxsplit=1)
    if len(subject) == 2 and subject[1].strip() and hits & set(find_terms(subject[0])):
        fitness *= 1.2
    return fitness


def _quote(language: Language, phrase: str, passage: AnswerPassage, passages: list[AnswerPassage]) -> str:
    label = f" ({passage.label})" if passage.kind == "memory" and passage.label else passage.label
    where = format_phrase(language, f"from_{passage.kind}", label=label)
    text = passage.text
    if _is_heading(text, passage.kind, passage.label):  # what it heads is the answer
        below = (p for p in passages if p.at == passage.at and p.order == passage.order + 1)
        text = " ".join([text, *(p.text for p in below)])
    elif passage.kind == "tool" and passage.heading:
        text = f"{passage.heading} … {text}"
    said = format_phrase(language, phrase, where=where, text=text)
    return said[0].upper() + said[1:]


def _passages(conversation: OfflineConversation, kinds: frozenset[str]) -> Iterator[AnswerPassage]:
    """Everything that may be quoted, newest message first, until enough was looked at."""
    made = {d.use.id: d for d in iterate_calls(conversation)}
    room = SCAN_ALL
    shown: set[tuple[str, str]] = set()
    for at in reversed(range(len(conversation.messages))):
        order = 0
        for kind, label, text in _sources(conversation, at, made):
            if room <= 0:
                return
            if kind not in kinds:
                continue
            room -= min(len(text), SCAN_HEAD + SCAN_TAIL)
            heading = ""
            if len(text) > SCAN_HEAD + SCAN_TAIL:
                text = text[:SCAN_HEAD] + "\n" + text[-SCAN_TAIL:]
            for sentence in split_sentences(text):
                if kind != "tool" or (sentence, heading) not in shown:
                    yield AnswerPassage(sentence, kind, label, at, order, heading)
                    shown.add((sentence, heading))
                heading = sentence if _is_heading(sentence, kind, label) else heading
                order += 1


def _is_heading(line: str, kind: Kind, label: str) -> bool:
    if _MARKDOWN_HEADING.match(line):  # in most files this begins a remark
        return kind != "tool" or label.endswith(".md")
    return _HEADING.match(line) is not None


def _sources(
    conversation: OfflineConversation, at: int, made: dict[str, PastCall]
) -> Iterable[tuple[Kind, str, str]]:
    """The texts of one message: whose they are, what they are called, what they say."""
    message = conversation.messages[at]
    for block in message.content:
        if isinstance(block, Text) and message.role == "assistant":
            yield "model", "", block.text
        elif isinstance(block, Text):
            if parse_directive(block.text):
                continue  # what a fork was asked for answers nothing
            typed, added = split_added(block.text)
            yield ("context" if at in conversation.added else "user"), "", typed
            for part in added:
                if part.tag in (LETTER, NOTICE):
                    one = make_arrival(at, part)
                    yield ("peer" if part.tag == LETTER else "agent"), one.who, one.text
                else:
                    yield *_labelled(part), _said(part)
    for result in message.results:
        if done := made.get(result.tool_use_id):
            yield "tool", describe_call(done.use), extract_shown_text(done)


def _said(part: AddedPart) -> str:
    """Its words; of recalled memories what stands between their tags."""
    if "recall" not in part.tag:
        return part.text
    return _TAGS.sub("", part.text[max(0, part.text.find("<memory ")) :])


def _labelled(part: AddedPart) -> tuple[Kind, str]:
    if is_piped(part):
        return "piped", ""
    remembered = "memor" in part.tag or "recall" in part.tag or "memory" in part.text[:200].lower()
    label = _LABEL.search(part.attributes) or re.search(r"(\S+\.md)\b", part.text[:200])
    return ("memory" if remembered else "context"), label[1] if label else ""
