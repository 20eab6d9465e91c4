"""The offline engine's reply to a conversation: the next tool calls, or words. A pure function.

ask       the newest thing a person, or a directive, asked for
plan      its steps, understood by rule
progress  which of them the view shows as done
reply     the calls of the next step; when none is left, what was found and the answers
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from sevenfold.core.messages import Block, Directive, Text, ToolUse, strip_half_characters
from sevenfold.offline.answer import describe_calls, find_answer, has_own_words, report_calls, report_piped
from sevenfold.offline.conversation import (
    OfflineConversation,
    PastCall,
    PersonRequest,
    find_ask,
    ignore_memory_if_asked,
    iterate_calls,
)
from sevenfold.offline.delegation import answer_shutdown, describe_arrival, find_news, is_over
from sevenfold.offline.language import is_chinese
from sevenfold.offline.memory_requests import plan_memory_write
from sevenfold.offline.notes import reply_to_notes
from sevenfold.offline.phrases import Language, format_phrase, join_phrases
from sevenfold.offline.plan import (
    CONTINUE,
    PlanProgress,
    Save,
    compare_progress,
    describe_call,
    is_refused_unread,
    make_call_key,
    plan_steps,
)
from sevenfold.offline.steps import (
    PlanStep,
    QuestionStep,
    RememberStep,
    Statement,
    ToolCallsStep,
    ToolCallStep,
    UnclearStep,
)
from sevenfold.offline.summaries import reply_to_record, reply_to_summary

LONGEST: Final = 40  # Characters of a name
_WORDS: Final = {
    "Read": ("Reading the file {}", "file_path"),
    "Write": ("Writing the file {}", "file_path"),
    "Edit": ("Editing the file {}", "file_path"),
    "Bash": ("Running the command {}", "command"),
    "Grep": ("Searching the files for {}", "pattern"),
    "Glob": ("Looking for files like {}", "pattern"),
    "Agent": ("Waiting for another agent", ""),
    "SendMessage": ("Writing to another agent", ""),
}
BEGINNING: Final = "Beginning with the task"
REPORTING: Final = "Writing up the results"


def reply_to_status(conversation: OfflineConversation, directive: Directive) -> tuple[Block, ...]:
    """The reply to a directive that asks for it: what was called last, or how it stands."""
    ask = find_ask(conversation)
    end = ask.at if ask else len(conversation.messages)
    said = [m for m in conversation.messages[:end] if m.role == "assistant"]
    if not said:
        return (Text(BEGINNING),)
    uses = said[-1].tool_uses
    return (Text(strip_half_characters(_doing(uses[-1]) if uses else REPORTING)),)


def _doing(use: ToolUse) -> str:
    phrase, key = _WORDS.get(use.name, ("Calling the tool {}", ""))
    return phrase.format(_one_word(str(use.input.get(key, "") if key else use.name), key))


def _one_word(text: str, key: str) -> str:
    """A file by its own name, a command by its program, anything else by its first word."""
    word = re.sub(r"\s+", "_", text.strip()) if key == "file_path" else text.strip().split(" ")[0]
    name = PurePosixPath(word.replace("\\", "/")).name if key in ("file_path", "command") else word
    return (name or word or "something").split("\n")[0][:LONGEST]


Blocks: TypeAlias = tuple[Block, ...]
Directed: TypeAlias = Callable[[OfflineConversation, Directive], Blocks]


class EngineRules(msgspec.Struct, frozen=True):
    """The additions of the layers above to what the engine does."""

    directives: Mapping[str, Directed] = {}  # The function for each kind of directive
    save: Save | None = None  # Saves something that is to be remembered; without it, it only stays in view


def _extracted(conversation: OfflineConversation, directive: Directive) -> Blocks:
    """Its rules take a while to load, and most conversations end without them."""
    from sevenfold.offline.extraction import reply_to_extraction

    return reply_to_extraction(conversation, directive)


RULES: Final = EngineRules(
    directives={
        "notes": reply_to_notes,
        "compact": reply_to_summary,
        "compact-plain": reply_to_record,
        "extract": _extracted,
        "status": reply_to_status,
    },
    save=plan_memory_write,
)

LONGEST_TEXT: Final = 16_000
LONGEST_QUOTE: Final = 200
_VERBS: Final = ("Read", "Write", "Edit", "Bash", "Grep", "Glob", "Agent", "SendMessage")
TASK: Final = "agent"
"""The kind of directive that hands a fork a task, to be done as if a person had asked for it."""
_ABOUT_FORKS: Final = "You are now a fork "  # The paragraph that tells a model what it has become begins so


def make_reply(conversation: OfflineConversation, rules: EngineRules = RULES) -> Blocks:
    """The reply. The same conversation always gets the same one."""
    ask = find_ask(conversation)
    if arrived := _arrived(conversation, ask):
        return arrived
    if ask is None:
        return _text(_unasked(conversation))
    if ask.directive and ask.directive.kind == TASK and TASK not in rules.directives:
        return _replied(conversation, replace(ask, text=_task(ask.directive)), ask.at, rules)
    if ask.directive:
        if work := rules.directives.get(ask.directive.kind):
            return work(conversation, ask.directive)
        return _text(format_phrase("en", "no_directive", kind=ask.directive.kind, id=ask.directive.id))
    if _asks_for_more(ask):
        return _continued(conversation, ask, rules)
    return _replied(conversation, ask, ask.at, rules)


def _task(directive: Directive) -> str:
    """The task itself, which stands below the words about forks."""
    about, _, task = directive.body.partition("\n\n")
    return task if task and about.startswith(_ABOUT_FORKS) else directive.body


def _arrived(conversation: OfflineConversation, ask: PersonRequest | None) -> Blocks:
    """Others have written since all that was asked for was done: what they wrote is told, and no more."""
    if ask is not None and not is_over(conversation, ask):
        return ()
    language = _language(ask) if ask else "en"
    if ends := answer_shutdown(conversation, ask):
        return _calling(language, conversation, ends)
    new = find_news(conversation, ask)
    return _text(_cut("\n\n".join(describe_arrival(language, one) for one in new))) if new else ()


def _replied(
    conversation: OfflineConversation, ask: PersonRequest, resumed: int, rules: EngineRules
) -> Blocks:
    language = _language(ask)
    steps = plan_steps(conversation, ask, rules.save)
    state = compare_progress(conversation, steps, ask.at, resumed)
    if not state.now and (ends := answer_shutdown(conversation, ask)):
        return _calling(language, conversation, ends)
    if not state.now:
        seen = replace(state, done=tuple(_to_report(state.done, resumed)))
        return _text(_closing(language, conversation, ask, steps, seen))
    return _calling(language, conversation, state.now)


def _calling(
    language: Language, conversation: OfflineConversation, now: tuple[ToolCallStep, ...]
) -> Blocks:
    """The calls with ids that no other place in this or another conversation is likely to have."""
    newest = repr(conversation.messages[-3:]).encode("utf-8", "backslashreplace")
    place = f"{len(conversation.messages):04d}_{blake2b(newest, digest_size=4).hexdigest()}"
    uses = tuple(
        ToolUse(f"toolu_off_{place}_{n}", call.name, _accepted(call, conversation))
        for n, call in enumerate(now)
    )
    return *_text(describe_calls(language, uses)), *uses


def _to_report(done: tuple[PastCall, ...], resumed: int) -> Iterator[PastCall]:
    """The calls made for this answer, without a refusal after which the same call was made again."""
    last = {make_call_key(d.use): d.at for d in done}
    for each in done:
        again = is_refused_unread(each) and last[make_call_key(each.use)] > each.at
        if each.at > resumed and not again:
            yield each


_OPTIONAL: Final = frozenset({"output_mode", "offset", "limit", "replace_all", "run_in_background"})


def _accepted(call: ToolCallStep, conversation: OfflineConversation) -> dict[str, object]:
    """The input without options that this tool does not have."""
    known = conversation.tools[call.name].get("properties")
    return {
        name: strip_half_characters(value) if isinstance(value, str) else value
        for name, value in call.input.items()
        if name not in _OPTIONAL or not isinstance(known, dict) or name in known
    }


def _asks_for_more(ask: PersonRequest) -> bool:
    short = len(ask.text) <= LONGEST_QUOTE
    return short and not ask.directive and bool(CONTINUE.fullmatch(ask.text))


def _continued(conversation: OfflineConversation, ask: PersonRequest, rules: EngineRules) -> Blocks:
    """More of what was asked before: the rest of the plan, or of a reply that was cut."""
    origin: PersonRequest | None = ask
    while origin and _asks_for_more(origin):
        origin = find_ask(conversation, origin.at)
    if origin is None or origin.directive:
        return _text(format_phrase(_language(ask), "nothing_left"))
    state = compare_progress(conversation, plan_steps(conversation, origin, rules.save), origin.at, ask.at)
    if state.now or any(d.at > ask.at for d in state.done):
        return _replied(conversation, origin, ask.at, rules)
    rest = _rest_of_cut(conversation, origin, ask, rules)
    return _text(rest or format_phrase(_language(ask), "nothing_left"))


def _rest_of_cut(
    conversation: OfflineConversation, origin: PersonRequest, ask: PersonRequest, rules: EngineRules
) -> str:
    """The rest of a reply that was cut, worked out again from what it was a reply to."""
    between = range(origin.at, ask.at)
    start = max(i for i in between if i == origin.at or conversation.messages[i].results)
    parts = [i for i in between if i > start and conversation.messages[i].role == "assistant"]
    if not parts:
        return ""
    said = "".join(conversation.messages[i].text for i in parts)
    before = replace(conversation, messages=conversation.messages[: parts[0]])
    reply = _replied(before, origin, origin.at, rules)
    whole = "".join(b.text for b in reply if isinstance(b, Text))
    return whole[len(said) :] if whole.startswith(said) else ""


def _unasked(conversation: OfflineConversation) -> str:
    """There is no request in view: say what the last calls gave, or what this is."""
    made = tuple(iterate_calls(conversation))
    if made:
        return "\n\n".join(report_calls("en", tuple(d for d in made if d.at == made[-1].at), brief=False))
    return f"{format_phrase('en', 'nothing_asked')} {format_phrase('en', 'limits')}"


def _closing(
    language: Language,
    conversation: OfflineConversation,
    ask: PersonRequest,
    steps: list[PlanStep],
    state: PlanProgress,
) -> str:
    """Nothing is left to call: what was found, what was not done, and the answers."""
    questions = [s for s in steps if isinstance(s, QuestionStep) and has_own_words(s.text)]
    seen = ignore_memory_if_asked(conversation) if questions else conversation
    answers = [find_answer(seen, ask, q.text, language) for q in questions]
    found = all(text is not None for text in answers) and bool(answers)
    said = report_calls(language, state.done, brief=found)
    if ask.piped and not found and not any(isinstance(s, ToolCallsStep) for s in steps):
        said.append(report_piped(language, ask.piped))
    for call in state.missing:
        said.append(format_phrase(language, "no_tool", what=describe_call(call), tool=call.name))
    if undone := join_phrases(language, [describe_call(c) for c in state.undone]):
        said.append(format_phrase(language, "not_done", what=undone))
    said += [text for step in steps if (text := _remark(language, step, steps))]
    for question, text in zip(questions, answers, strict=True):
        said.append(text or format_phrase(language, "nothing_found", what=_short(question.text)))
    if ask.media:
        said.append(format_phrase(language, "no_images"))
    said += [describe_arrival(language, one) for one in find_news(conversation, ask)]
    if any(isinstance(s, UnclearStep) and s.why == "who" for s in steps):
        said.append(describe_engine(language, conversation))
    elif _is_lost(steps, answers, state, bool(ask.piped)) or not said:
        said = _add_limits(language, conversation, said)
    return _cut("\n\n".join(said))


def _add_limits(language: Language, conversation: OfflineConversation, said: list[str]) -> list[str]:
    """The reply with one sentence on what this engine is, behind its last line; once in a conversation."""
    limits = format_phrase(language, "limits")
    before = (message.text for message in conversation.messages if message.role == "assistant")
    if said and any(limits in text for text in before):
        return said
    if not said or said[-1].endswith("```"):
        return [*said, limits]
    return [*said[:-1], f"{said[-1]} {limits}"]


def _remark(language: Language, step: PlanStep, steps: list[PlanStep]) -> str | None:
    """The remark on a step that is neither a call nor a question."""
    match step:
        case RememberStep(text):
            return format_phrase(language, "kept", what=_short(text))
        case Statement() if all(isinstance(s, Statement) for s in steps):
            whole = " ".join(s.text for s in steps if isinstance(s, Statement))
            return format_phrase(language, "heard", what=_short(whole)) if step is steps[0] else None
        case UnclearStep(_, "who"):
            return None  # what it is follows anyway
        case UnclearStep(text, why):
            return format_phrase(language, why, what=_short(text))
    return None


def _is_lost(
    steps: list[PlanStep], answers: list[str | None], state: PlanProgress, described: bool
) -> bool:
    """True if the reply should say what this engine is: it could not do what was asked of it."""
    puzzled = any(isinstance(s, UnclearStep) and s.why in ("no_rule", "who", "hello") for s in steps)
    understood = ToolCallsStep | RememberStep | Statement | UnclearStep
    idle = not (state.done or described or any(isinstance(s, understood) for s in steps))
    return puzzled or None in answers or (idle and not any(answers))


def describe_engine(language: Language, conversation: OfflineConversation) -> str:
    """Describe the engine, what it can do here, and how to get more."""
    able = [format_phrase(language, f"can_{name}") for name in _VERBS if name in conversation.tools]
    tools = format_phrase(language, "strange_tools" if conversation.tools else "no_tools")
    if able:
        tools = format_phrase(language, "can_call", verbs=join_phrases(language, able))
    who, quote, connect = (format_phrase(language, key) for key in ("who", "can_quote", "connect"))
    return (" " if language == "en" else "").join([who, quote, tools, connect])


def _language(ask: PersonRequest) -> Language:
    return "zh" if is_chinese(ask.text) else "en"


def _short(text: str) -> str:
    return _cut(" ".join(text.split()).rstrip(".。"), LONGEST_QUOTE)


def _cut(text: str, most: int = LONGEST_TEXT) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _text(text: str) -> tuple[Text, ...]:
    return (Text(strip_half_characters(text)),)
