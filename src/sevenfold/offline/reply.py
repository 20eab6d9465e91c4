"""What the offline engine replies to a conversation: the next tool calls, or words. A pure function.

ask       the newest thing a person, or a directive, asked for
plan      its steps, understood by rule
progress  which of them the view shows as done
reply     the calls of the next step; when none is left, what was found and the answers

What a conversation is doing now, in three to five words, for somebody who looks at it from outside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from sevenfold.messages import Block, Text, ToolUse, whole_characters
from sevenfold.models.directives import Directive
from sevenfold.offline.answer import answer_from, asks_something, doing, piped_report, reports
from sevenfold.offline.conversation import Ask, Conversation, Done, as_if_empty, calls, find_ask
from sevenfold.offline.delegate import agreed_to_end, is_over, news, told
from sevenfold.offline.language import is_chinese
from sevenfold.offline.memorise import saved
from sevenfold.offline.notes import noted
from sevenfold.offline.phrases import Language, joined, say
from sevenfold.offline.plan import CONTINUE, Progress, Save, key, named, plan, progress, was_unread
from sevenfold.offline.steps import Call, Calls, Keep, Question, Said, Step, Unclear
from sevenfold.offline.summaries import summarised

LONGEST: Final = 40
"""Characters of a name."""
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


def status(conversation: Conversation, directive: Directive) -> tuple[Block, ...]:
    """The reply to a directive that asks for it: what was called last, or how it stands."""
    ask = find_ask(conversation)
    end = ask.at if ask else len(conversation.messages)
    said = [m for m in conversation.messages[:end] if m.role == "assistant"]
    if not said:
        return (Text(BEGINNING),)
    uses = said[-1].tool_uses
    return (Text(whole_characters(_doing(uses[-1]) if uses else REPORTING)),)


def _doing(use: ToolUse) -> str:
    phrase, key = _WORDS.get(use.name, ("Calling the tool {}", ""))
    about = use.input.get(key, "") if key else use.name
    return phrase.format(_one_word(str(about), key))


def _one_word(text: str, key: str) -> str:
    """A file by its own name, a command by its program, anything else by its first word."""
    word = re.sub(r"\s+", "_", text.strip()) if key == "file_path" else text.strip().split(" ")[0]
    name = PurePosixPath(word.replace("\\", "/")).name if key in ("file_path", "command") else word
    return (name or word or "something").split("\n")[0][:LONGEST]


Blocks: TypeAlias = tuple[Block, ...]
Directed: TypeAlias = Callable[[Conversation, Directive], Blocks]


class Rules(msgspec.Struct, frozen=True):
    """Where the layers above add what the engine does for them."""

    directives: Mapping[str, Directed] = {}
    """What is done for each kind of directive."""
    save: Save | None = None
    """How something is saved that is to be remembered; without it, it only stays in view."""


def _extracted(conversation: Conversation, directive: Directive) -> Blocks:
    """Its rules take a while to load, and most conversations end without them."""
    from sevenfold.offline.extraction import extracted

    return extracted(conversation, directive)


RULES: Final = Rules(
    directives={"notes": noted, "compact": summarised, "extract": _extracted, "status": status},
    save=saved,
)

LONGEST_TEXT: Final = 16_000
LONGEST_QUOTE: Final = 200
_VERBS: Final = ("Read", "Write", "Edit", "Bash", "Grep", "Glob", "Agent", "SendMessage")
TASK: Final = "agent"
"""The kind of directive that hands a fork a task, to be done as if a person had asked for it."""
_ABOUT_FORKS: Final = "You are now a fork "
"""How the paragraph begins that tells a model what it has become."""


def answer(conversation: Conversation, rules: Rules = RULES) -> Blocks:
    """The reply. The same conversation always gets the same one."""
    ask = find_ask(conversation)
    if arrived := _arrived(conversation, ask):
        return arrived
    if ask is None:
        return _text(_unasked(conversation))
    if ask.directive and ask.directive.kind == TASK and TASK not in rules.directives:
        return _replied(conversation, replace(ask, text=_task(ask.directive)), ask.at, rules)
    if ask.directive:
        return _directed(conversation, ask.directive, rules)
    if _asks_for_more(ask):
        return _continued(conversation, ask, rules)
    return _replied(conversation, ask, ask.at, rules)


def _task(directive: Directive) -> str:
    """The task itself, which stands below the words about forks."""
    about, _, task = directive.body.partition("\n\n")
    return task if task and about.startswith(_ABOUT_FORKS) else directive.body


def _arrived(conversation: Conversation, ask: Ask | None) -> Blocks:
    """Others have written since all that was asked for was done: what they wrote is told, and no more."""
    if ask is not None and not is_over(conversation, ask):
        return ()
    language = _language(ask) if ask else "en"
    if ends := agreed_to_end(conversation, ask):
        return _calling(language, conversation, ends)
    new = news(conversation, ask)
    return _text(_cut("\n\n".join(told(language, one) for one in new))) if new else ()


def _directed(conversation: Conversation, directive: Directive, rules: Rules) -> Blocks:
    if work := rules.directives.get(directive.kind):
        return work(conversation, directive)
    return _text(say("en", "no_directive", kind=directive.kind, id=directive.id))


def _replied(conversation: Conversation, ask: Ask, resumed: int, rules: Rules) -> Blocks:
    language = _language(ask)
    steps = plan(conversation, ask, rules.save)
    state = progress(conversation, steps, ask.at, resumed)
    if not state.now and (ends := agreed_to_end(conversation, ask)):
        return _calling(language, conversation, ends)
    if not state.now:
        seen = replace(state, done=tuple(_to_report(state.done, resumed)))
        return _text(_closing(language, conversation, ask, steps, seen))
    return _calling(language, conversation, state.now)


def _calling(language: Language, conversation: Conversation, now: tuple[Call, ...]) -> Blocks:
    uses = _uses(conversation, now)
    return *_text(doing(language, uses)), *uses


def _to_report(done: tuple[Done, ...], resumed: int) -> Iterator[Done]:
    """What was done for this answer, without a refusal after which the same call was made again."""
    last = {key(d.use): d.at for d in done}
    for each in done:
        again = was_unread(each) and last[key(each.use)] > each.at
        if each.at > resumed and not again:
            yield each


def _uses(conversation: Conversation, now: tuple[Call, ...]) -> tuple[ToolUse, ...]:
    """The calls with ids that no other place in this or another conversation is likely to have."""
    newest = repr(conversation.messages[-3:]).encode("utf-8", "backslashreplace")
    place = f"{len(conversation.messages):04d}_{blake2b(newest, digest_size=4).hexdigest()}"
    return tuple(
        ToolUse(f"toolu_off_{place}_{n}", call.name, _accepted(call, conversation))
        for n, call in enumerate(now)
    )


_OPTIONAL: Final = frozenset({"output_mode", "offset", "limit", "replace_all", "run_in_background"})


def _accepted(call: Call, conversation: Conversation) -> dict[str, object]:
    """The input without options that this tool does not have."""
    known = conversation.tools[call.name].get("properties")
    return {
        name: whole_characters(value) if isinstance(value, str) else value
        for name, value in call.input.items()
        if name not in _OPTIONAL or not isinstance(known, dict) or name in known
    }


def _asks_for_more(ask: Ask) -> bool:
    short = len(ask.text) <= LONGEST_QUOTE
    return short and not ask.directive and bool(CONTINUE.fullmatch(ask.text))


def _continued(conversation: Conversation, ask: Ask, rules: Rules) -> Blocks:
    """More of what was asked before: the rest of the plan, or of a reply that was cut."""
    origin: Ask | None = ask
    while origin and _asks_for_more(origin):
        origin = find_ask(conversation, origin.at)
    if origin is None or origin.directive:
        return _text(say(_language(ask), "nothing_left"))
    state = progress(conversation, plan(conversation, origin, rules.save), origin.at, ask.at)
    if state.now or any(d.at > ask.at for d in state.done):
        return _replied(conversation, origin, ask.at, rules)
    rest = _rest_of_cut(conversation, origin, ask, rules)
    return _text(rest or say(_language(ask), "nothing_left"))


def _rest_of_cut(conversation: Conversation, origin: Ask, ask: Ask, rules: Rules) -> str:
    """What the reply would have gone on to say, worked out again from what it was a reply to."""
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


def _unasked(conversation: Conversation) -> str:
    """There is no request in view: say what the last calls gave, or what this is."""
    made = tuple(calls(conversation))
    if made:
        return "\n\n".join(
            reports("en", tuple(d for d in made if d.at == made[-1].at), brief=False)
        )
    return "\n\n".join([say("en", "nothing_asked"), about("en", conversation)])


def _closing(
    language: Language, conversation: Conversation, ask: Ask, steps: list[Step], state: Progress
) -> str:
    """Nothing is left to call: what was found, what was not done, and the answers."""
    questions = [s for s in steps if isinstance(s, Question) and asks_something(s.text)]
    seen = as_if_empty(conversation) if questions else conversation
    answers = [answer_from(seen, ask, q.text, language) for q in questions]
    found = all(text is not None for text in answers) and bool(answers)
    said = reports(language, state.done, brief=found)
    if ask.piped and not found and not any(isinstance(s, Calls) for s in steps):
        said.append(piped_report(language, ask.piped))
    for call in state.missing:
        said.append(say(language, "no_tool", what=named(call), tool=call.name))
    if state.undone:
        said.append(
            say(language, "not_done", what=joined(language, [named(c) for c in state.undone]))
        )
    said += [text for step in steps if (text := _remark(language, step, steps))]
    for question, text in zip(questions, answers, strict=True):
        said.append(text or say(language, "nothing_found", what=_short(question.text)))
    if ask.media:
        said.append(say(language, "no_images"))
    said += [told(language, one) for one in news(conversation, ask)]
    if _is_lost(steps, answers, state, bool(ask.piped)) or not said:
        said.append(about(language, conversation))
    return _cut("\n\n".join(said))


def _remark(language: Language, step: Step, steps: list[Step]) -> str | None:
    """What there is to say about a step that is neither a call nor a question."""
    match step:
        case Keep(text):
            return say(language, "kept", what=_short(text))
        case Said() if all(isinstance(s, Said) for s in steps):
            whole = " ".join(s.text for s in steps if isinstance(s, Said))
            return say(language, "heard", what=_short(whole)) if step is steps[0] else None
        case Unclear(_, "who"):
            return None  # what it is follows anyway
        case Unclear(text, why):
            return say(language, why, what=_short(text))
    return None


def _is_lost(
    steps: list[Step], answers: list[str | None], state: Progress, described: bool
) -> bool:
    """Whether to say what this engine is: it could not do what was asked of it."""
    puzzled = any(isinstance(s, Unclear) and s.why in ("no_rule", "who", "hello") for s in steps)
    useful = bool(state.done) or described
    idle = not useful and not any(isinstance(s, Calls | Keep | Said | Unclear) for s in steps)
    return puzzled or None in answers or (idle and not any(answers))


def about(language: Language, conversation: Conversation) -> str:
    """What this is, what it can do here, and how to get more."""
    able = [say(language, f"can_{name}") for name in _VERBS if name in conversation.tools]
    tools = say(language, "strange_tools" if conversation.tools else "no_tools")
    if able:
        tools = say(language, "can_call", verbs=joined(language, able))
    space = " " if language == "en" else ""
    lines = [say(language, "who"), say(language, "can_quote"), tools, say(language, "connect")]
    return space.join(lines)


def _language(ask: Ask) -> Language:
    return "zh" if is_chinese(ask.text) else "en"


def _short(text: str) -> str:
    text = " ".join(text.split()).rstrip(".。")
    return text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 1] + "…"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def _text(text: str) -> tuple[Text, ...]:
    return (Text(whole_characters(text)),)
