"""Makes a plan of steps from a request, and finds how far the plan has come.

Nothing is remembered between two requests: which steps are done is read off the view each time.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from sevenfold.core.messages import ToolUse
from sevenfold.offline import chinese as verbs_zh
from sevenfold.offline import english as verbs
from sevenfold.offline.conversation import OfflineConversation, PastCall, PersonRequest, iterate_calls
from sevenfold.offline.delegation import plan_handover
from sevenfold.offline.language import LexedRequest, lex_request, split_soft_parts
from sevenfold.offline.memory_requests import gather_reasons, plan_forget
from sevenfold.offline.steps import (
    IT,
    AgentOffer,
    ForgetStep,
    PlanStep,
    QuestionStep,
    RememberStep,
    Statement,
    StepRule,
    ToolCallsStep,
    ToolCallStep,
    UnclearStep,
    find_agent_offer,
    is_file_name,
)

LONGEST_REQUEST: Final = 200_000
LONGEST_PIECE: Final = 1_000  # A longer sentence is a text, not a request
MOST_CALLS: Final = 30
SAME_CALL: Final = 2  # The same tool is called with the same input at most this often for one request

_FILE_TOOLS: Final = ("Read", "Write", "Edit")
_LANGUAGES: Final[tuple[tuple[re.Pattern[str], tuple[StepRule, ...]], ...]] = (
    (verbs.POLITE, verbs.RULES),
    (verbs_zh.POLITE, verbs_zh.RULES),
)
_QUESTION = re.compile(
    r"(?:what|which|who|whom|whose|where|why|how)\b|(?:do|did) you (?:remember|know|recall)\b", re.I
)
_QUESTION_ZH = re.compile(
    r"什么|哪[个些里儿一]|谁|多少|几[个点号月年]|怎么|为何|如何|是否|是不是|[吗呢]\W*$"
)
_SMALL_TALK: Final = {
    "hello": r"(?:hi|hello|hey|good (?:morning|evening)|你好|您好|嗨)\b\W*(?:there|all)?\W*",
    "welcome": r"(?:(?:ok(?:ay)?|great|perfect|good|nice|cool|好的?|很好|太好了)\W*)?"
    r"(?:(?:many\s+)?thanks?(?:\s+you)?(?:\s+(?:so much|very much|a lot|again|for [\w' ]{1,40}))?"
    r"|thx|cheers|(?:非常|十分)?(?:感谢|谢谢|多谢)(?:你|您|了|啦)*)\W*",
    "who": r"(?:help|who are you|what are you|what can you do|how do (?:i|you) (?:work|use this)"
    r"|你是谁|你是什么|你能做什么|你会什么|帮助)\W*",
}
"""Patterns of small talk, by the phrase that answers."""
_WISH = re.compile(
    r"(?:add|analy[sz]e|build|clean|commit|convert|copy|debug|delete|deploy|design|do|draw|fix|generate|go|help"
    r"|implement|improve|install|investigate|make|merge|move|optimi[sz]e|plan|push|refactor|remove|review"
    r"|rewrite|solve|start|stop|test|translate|try|update|upgrade|use)\b",
    re.I,
)
_STATEMENT = re.compile(
    r"(?:the|my|our|we|we're|i|i'm|it|it's|this|that|these|those|there|his|her|their|its|an?|you|he|she|they"
    r"|actually|no|yes|for)\b|(?:\S+\s+){1,3}(?:is|are|was|were|has|have|uses|means|=|:)\s|[^\n:=]{1,40}[:=]\s",
    re.I,
)
_STATEMENT_ZH = re.compile(r"[是为叫在有用]")
CONTINUE: Final = re.compile(
    r"\W*(?:please\s+)?(?:continue|go on|carry on|keep going|proceed|resume|try again|retry"
    r"|继续|接着做?|再试一?次?|重试)(?:\s+(?:please|now|from there|with (?:it|that|the (?:plan|rest))))?\W*"
    r"|[^\n]{0,120}\b(?:continue|go on|resume)\b[^\n]{0,60}\b(?:stopped|left off|cut off)\b\W*",
    re.I,
)
"""A request for more of the same: the rest of a plan, or of a reply that was cut."""


def parse_request(text: str, offer: AgentOffer | None = None) -> list[PlanStep]:
    """The steps a text asks for, in order. Depends on the text, and on who could be asked for help."""
    if len(text) > LONGEST_REQUEST:
        return [UnclearStep(text[:LONGEST_PIECE], "too_long")]
    lexed = lex_request(text)
    pieces, steps = lexed.pieces(), list[PlanStep]()
    while pieces:
        short = len(pieces[0]) <= LONGEST_PIECE
        if offer and short and (handed := plan_handover(pieces, lexed, offer)):
            steps.append(handed.step)
            pieces = pieces[handed.pieces :]
            continue
        steps += _steps_of(pieces.pop(0), lexed, offer)
    return steps


def _steps_of(piece: str, lexed: LexedRequest, offer: AgentOffer | None) -> Iterable[PlanStep]:
    if len(piece) > LONGEST_PIECE:
        return (Statement(lexed.raw(piece)),)
    piece = re.sub(r"\bfind and replace\b", "replace", piece, flags=re.I)
    whole = _by_rule(piece, lexed)
    if whole and isinstance(whole[0], RememberStep):
        return whole
    parts = split_soft_parts(piece)
    first = _by_rule(parts[0], lexed) or (_otherwise(parts[0], lexed),)
    if len(parts) == 1:
        return first
    if isinstance(first[0], Statement) or first[0] == UnclearStep(lexed.raw(parts[0]).strip()):
        return whole or (_otherwise(piece, lexed),)
    rest = (_later(part, lexed, offer) for part in parts[1:])
    return (*first, *(step for steps in rest for step in steps))


def _later(part: str, lexed: LexedRequest, offer: AgentOffer | None) -> tuple[PlanStep, ...]:
    """The requests of a sentence after its first part."""
    if offer and (handed := plan_handover([part], lexed, offer)):
        return (handed.step,)
    return _by_rule(part, lexed) or (_otherwise(part, lexed),)


def _by_rule(part: str, lexed: LexedRequest) -> tuple[PlanStep, ...] | None:
    for polite, rules in _LANGUAGES:
        said = part.strip()
        if ahead := polite.match(said):
            said = said[ahead.end() :]
        for pattern, build in rules:
            if (match := pattern.match(said)) and (steps := build(match, lexed)):
                return steps
    return None


def _otherwise(part: str, lexed: LexedRequest) -> PlanStep:
    said = lexed.raw(part).strip()
    for phrase, pattern in _SMALL_TALK.items():
        if re.fullmatch(pattern, said, re.I):
            return UnclearStep(said, phrase)
    if part.rstrip().endswith((":", "：")):
        return Statement(said)  # it announces what follows
    bare = verbs.POLITE.sub("", part.strip(), count=1)
    if said.endswith(("?", "？")) or _QUESTION.match(bare) or _QUESTION_ZH.search(part):
        return QuestionStep(said)
    states = _STATEMENT.match(part.strip()) or _STATEMENT_ZH.search(part)
    return Statement(said) if states and not _WISH.match(bare) else UnclearStep(said)


Save: TypeAlias = Callable[[OfflineConversation, str], Sequence[ToolCallsStep]]
"""The calls that save a text for good in this conversation; none where there is no place for it."""


def plan_steps(
    conversation: OfflineConversation, ask: PersonRequest, save: Save | None = None
) -> list[PlanStep]:
    """The steps of a request in this conversation: "it" is resolved, a file is read before an edit."""
    steps: list[PlanStep] = []
    last: str | None = None
    for step in gather_reasons(parse_request(ask.text, find_agent_offer(conversation))):
        lasting = step.text if isinstance(step, RememberStep) and step.lasting else ""
        if lasting and save and (saving := save(conversation, lasting)):
            steps.extend(saving)
            continue
        if isinstance(step, ForgetStep):
            steps.extend(plan_forget(conversation, step.text, ask.at) if save else (Statement(step.text),))
            continue
        if isinstance(step, ToolCallsStep):
            last = last or (_last_file(conversation, ask.at) if _says_it(step) else None)
            if _says_it(step) and last is None:
                steps.append(UnclearStep(ask.text, "which_file"))
                continue
            step = ToolCallsStep(tuple(_resolved(call, last) for call in step.calls))
            last = next((f for c in step.calls[::-1] if (f := c.input.get("file_path"))), last)
            steps.extend(_unread(step, steps, conversation, ask.at))
            steps.extend(_refused(step, conversation, ask.at))
        elif isinstance(step, QuestionStep) and (asked := _file_asked_about(step.text)):
            look = ToolCallStep("Read", {"file_path": asked})
            if "Read" in conversation.tools and not _seen(look, steps, conversation, ask.at):
                steps.append(ToolCallsStep((look,)))
        steps.append(step)
    return list(_bounded(steps))


def _says_it(step: ToolCallsStep) -> bool:
    return any(IT in (c.input.get("file_path"), c.input.get("path")) for c in step.calls)


def _resolved(call: ToolCallStep, last: str | None) -> ToolCallStep:
    named = {k: last if v == IT and k.endswith("path") else v for k, v in call.input.items()}
    return ToolCallStep(call.name, named)


def _last_file(conversation: OfflineConversation, before: int) -> str | None:
    made = [d.use.input.get("file_path") for d in iterate_calls(conversation, 0, before)]
    return next((f for f in reversed(made) if isinstance(f, str) and f), None)


def _unread(
    step: ToolCallsStep, earlier: list[PlanStep], conversation: OfflineConversation, before: int
) -> Iterator[PlanStep]:
    """A read for each file that is to be edited and was not seen yet."""
    for call in step.calls:
        if call.name == "Edit" and not _seen(call, earlier, conversation, before):
            yield ToolCallsStep((ToolCallStep("Read", {"file_path": call.input["file_path"]}),))


def _seen(
    call: ToolCallStep, earlier: list[PlanStep], conversation: OfflineConversation, before: int
) -> bool:
    """True if the file of a call was read or written before, or will have been by then."""
    path = _norm(call.input["file_path"])
    planned = (c for s in earlier if isinstance(s, ToolCallsStep) for c in s.calls)
    made = (d.use for d in iterate_calls(conversation, 0, before) if d.result and not d.failed)
    known: list[ToolCallStep | ToolUse] = [*planned, *made]
    return any(c.name in _FILE_TOOLS and _norm(c.input.get("file_path")) == path for c in known)


def _refused(step: ToolCallsStep, conversation: OfflineConversation, asked: int) -> Iterator[PlanStep]:
    """A call that was refused since its file had not been read; then the read, before it is made again."""
    made = {make_call_key(d.use) for d in iterate_calls(conversation, asked + 1) if is_refused_unread(d)}
    for call in step.calls:
        if make_call_key(call) in made and "Read" in conversation.tools:
            yield ToolCallsStep((call,))
            yield ToolCallsStep((ToolCallStep("Read", {"file_path": call.input["file_path"]}),))


def is_refused_unread(done: PastCall) -> bool:
    """True if a change was refused only because the file had not been read."""
    told = done.result.text if done.failed and done.result else ""
    return done.use.name in ("Write", "Edit") and "has not been read" in told[:LONGEST_PIECE]


_ASKS_OF_FILE = re.compile(
    r"\b(?:in|inside|from|of|does|do|by)\s+(?:the\s+)?(?:file\s+)?[`\"“]?(?P<en>[\w./~-]*\w\.\w{1,10})\b"
    r"|(?P<zh>[A-Za-z0-9_./~-]*\w\.[A-Za-z0-9]{1,10})[`\"”]?\s*(?:文件)?(?:里面|里|中|的|用|使用)",
    re.I,
)
_ASKS_OF_TALK = re.compile(
    r"\b(?:did|have|do) (?:i|you|we)\b|\b(?:i|you|we) (?:said|told|did)\b"
    r"|[我你](?:们)?.{0,4}(?:说|读|改|写|做)",
    re.I,
)


def _file_asked_about(question: str) -> str | None:
    """The file that a question is put to; None where it is about the conversation."""
    found = _ASKS_OF_FILE.search(question)
    if found is None or _ASKS_OF_TALK.search(question):
        return None
    name = found["en"] or found["zh"]
    return name if is_file_name(name) else None


def _norm(path: object) -> str:
    return posixpath.normpath(path.replace("\\", "/")) if isinstance(path, str) else ""


def _bounded(steps: list[PlanStep]) -> Iterator[PlanStep]:
    """The plan with no call more than twice and not more calls than one request is worth."""
    times: Counter[str] = Counter()
    for step in steps:
        if not isinstance(step, ToolCallsStep):
            yield step
            continue
        kept: list[ToolCallStep] = []
        for call in step.calls:
            if times.total() >= MOST_CALLS:
                yield UnclearStep(describe_call(call), "too_many")
            elif times[make_call_key(call)] >= SAME_CALL:
                yield UnclearStep(describe_call(call), "too_often")
            else:
                times[make_call_key(call)] += 1
                kept.append(call)
        if kept:
            yield ToolCallsStep(tuple(kept))


def make_call_key(call: ToolCallStep | ToolUse) -> str:
    """The same for the same tool with the same input."""
    return f"{call.name} {json.dumps(call.input, sort_keys=True, default=str)}"


_ABOUT: Final = ("file_path", "command", "pattern", "description", "to")


def describe_call(call: ToolCallStep | ToolUse) -> str:
    """A call in a few words: the tool and what it is about."""
    about = next((v for k in _ABOUT if isinstance(v := call.input.get(k), str)), "")
    short = " ".join(about.split())
    if not short:
        return call.name
    if "file_path" in call.input:  # whole: it is there to be used
        return f"{call.name} {short}"
    return f"{call.name} {format_code(short if len(short) <= 80 else short[:79] + '…')}"


def format_code(text: str) -> str:
    """The text as inline code, also when it has backticks of its own."""
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{space}{text}{space}{ticks}"


class PlanProgress(msgspec.Struct, frozen=True):
    """The progress of a plan: the calls to make now, those that were made, those that will not be."""

    now: tuple[ToolCallStep, ...]
    done: tuple[PastCall, ...]
    undone: tuple[ToolCallStep, ...] = ()  # Left out because something before it failed
    missing: tuple[ToolCallStep, ...] = ()  # Left out because the request does not offer the tool


def compare_progress(
    conversation: OfflineConversation, steps: list[PlanStep], asked: int, resumed: int
) -> PlanProgress:
    """Compare the plan with the calls made since it was asked for, or asked for again."""
    done = tuple(iterate_calls(conversation, asked + 1))
    fresh = [d for d in done if d.at > resumed]
    mended = {d.use.id for d in done if is_refused_unread(d) and "Read" in conversation.tools}
    counted = Counter(
        make_call_key(d.use) for d in done if d.at > resumed or not d.failed or d.use.id in mended
    )
    planned = [step.calls for step in steps if isinstance(step, ToolCallsStep)]
    todo = [left for group in planned if (left := _not_yet(group, counted))]
    rest = tuple(call for group in todo for call in group)
    if not todo or any(d.failed and d.use.id not in mended for d in fresh):
        return PlanProgress((), done, undone=rest)
    if missing := tuple(c for c in todo[0] if c.name not in conversation.tools):
        return PlanProgress((), done, undone=rest[len(todo[0]) :], missing=missing)
    times = Counter(make_call_key(d.use) for d in done)
    worn = any(times[make_call_key(call)] >= SAME_CALL for call in todo[0])
    if worn or len({d.at for d in fresh}) >= sum(map(len, planned)):
        return PlanProgress((), done, undone=rest)
    return PlanProgress(todo[0], done)


def _not_yet(group: tuple[ToolCallStep, ...], counted: Counter[str]) -> tuple[ToolCallStep, ...]:
    left = []
    for call in group:
        if counted[make_call_key(call)] > 0:
            counted[make_call_key(call)] -= 1
        else:
            left.append(call)
    return tuple(left)
