"""The offline engine summarises: it collects a story from the conversation and retells it in lines.

Everything in a story was said or done by the user or the assistant, or is the end of what a tool printed.
Nothing is understood, so nothing is made up; and what a tool printed is quoted, never obeyed.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from sevenfold.core.messages import (
    Block,
    Directive,
    Json,
    Message,
    Text,
    ToolResult,
    ToolUse,
    parse_directive,
)
from sevenfold.core.tokens import TEXT_RATE, MessageSize, count_bytes
from sevenfold.core.transcript import PlacedMessage
from sevenfold.layers.shared.boundary import TITLES
from sevenfold.layers.shared.facts import (
    FactCollector,
    Facts,
    FileFact,
    IdentityCache,
    clip_text,
    count_line_bytes,
    level_sizes,
    summarise_call,
    to_bounded_line,
)
from sevenfold.layers.shared.fidelity import find_names, iterate_strings
from sevenfold.offline.conversation import OfflineConversation, parse_arrival, split_added

STEP: Final = 200  # Bytes of what the assistant says before it calls tools
NAMES: Final = 16  # Names that are told of one file
SAID: Final = 3  # A name that the user says counts this often; one that the assistant says counts once
_DEFINES: Final = re.compile(
    r"\b(?:def|class|func|function|fn|type|struct|enum|trait|interface|const)\s+(?:\([^)\n]*\)\s*)?"
    r"([A-Za-z_]\w{3,})"
)
_GO_ON: Final = "Your last reply was cut off at its length limit."
"""A turn that wants the rest of a reply begins so: no person typed that."""
NOTES: Final = "session-notes"
STANDING: Final = ("summary", NOTES, "digest", "collapsed", "snipped")
"""The tags around what a compaction has put in place of messages."""
_STANDS_FOR: Final = re.compile(rf"\s*<(?:{'|'.join(STANDING)})>")
_SECTION: Final = re.compile(
    r"^[#*\d.): \t]*+(?:primary request|files and code|errors and fix|pending task|current work)",
    re.IGNORECASE | re.MULTILINE,
)
_ENOUGH: Final = 3  # So many headings of a summary make one, whoever wrote it


class AssistantStep(msgspec.Struct, frozen=True):
    """The assistant's words before it called tools, and the message of the user they are for."""

    asked: int
    text: str


class ConversationStory(msgspec.Struct, frozen=True):
    facts: Facts
    names: tuple[str, ...]  # Names that user and assistant used more than once, the most used first
    in_files: dict[str, tuple[str, ...]]
    """Names that were written into a file, or defined in one that was read, and used."""
    steps: tuple[AssistantStep, ...] = ()
    calls: tuple[str, ...] = ()
    earlier: str = ""  # The newest text that stands for what was before: a summary or a digest

    @property
    def said(self) -> list[str]:
        return [one.text.strip() for one in self.facts.said if one.text.strip()]


def collect_story(
    conversation: OfflineConversation, start: int = 0, end: int | None = None
) -> ConversationStory:
    """The story of the messages between two places; requests to forks are no part of it."""
    if not start and end is None and (telling := _take_new(conversation)):
        return telling.story
    telling = _StoryCollector()
    for placed in _placed(conversation, range(len(conversation.messages))[start:end]):
        telling.take(placed)
    return telling.story


class _LastTold(threading.local):
    """The conversation that this thread told last, how far, and its collector: notes are written about the
    same one again and again.
    """

    told: tuple[OfflineConversation, int, _StoryCollector] | None = None


_LAST: Final = _LastTold()


def _take_new(conversation: OfflineConversation) -> _StoryCollector | None:
    """A collector that has taken all in, with what it knows of the last story if this one goes on with it.

    None where something is told behind a request to a fork: that is no part of the next conversation.
    """
    messages, added = conversation.messages, conversation.added
    last, known, telling = _LAST.told or (conversation, 0, _StoryCollector())
    same = messages[:known] == last.messages[:known]
    if not same or any((at in added) != (at in last.added) for at in range(known)):
        known, telling = 0, _StoryCollector()
    while known < len(messages) and not _directs(messages[known]):
        for placed in _place(conversation, known):
            telling.take(placed)
        known += 1
    _LAST.told = conversation, known, telling
    behind = _placed(conversation, range(known, len(messages)))
    return None if any(placed.message.content for placed in behind) else telling


def _directs(message: Message) -> bool:
    return any(isinstance(b, Text) and parse_directive(b.text) for b in message.content)


class _StoryCollector:
    def __init__(self) -> None:
        self._collector = FactCollector()
        self._uses: Counter[str] = Counter()
        self._written: dict[str, Counter[str]] = {}
        self._open: dict[str, str] = {}
        self._steps: list[AssistantStep] = []
        self._calls: list[str] = []
        self._asked, self._earlier = 0, ""

    def take(self, placed: PlacedMessage) -> None:
        message = placed.message
        if placed.by == EARLIER:
            self._earlier = message.text
            return
        if not message.content:
            return
        self._collector.take(placed)
        if message.role == "assistant":
            self._act(message)
            return
        for result in message.results:
            if (path := self._open.pop(result.tool_use_id, None)) and not result.is_error:
                self._in(path, _DEFINES.findall(result.text))
        if placed.by == "user" and message.text.strip():
            self._asked += 1
            self._use(sorted(find_names(message.text)), SAID)

    def _act(self, message: Message) -> None:
        self._use(_USED.of(message), 1)
        for use in message.tool_uses:
            call = summarise_call(use)
            self._calls.append(call.name)
            if call.kind == "change":
                self._in(call.about, _CHANGED.of(use))
            elif call.kind == "read":
                self._open[use.id] = call.about
        if message.tool_uses and (words := _TELLING.of(message)):
            self._steps.append(AssistantStep(self._asked, words))

    def _use(self, names: Sequence[str], times: int) -> None:
        for name in names:
            self._uses[name] += times

    def _in(self, path: str, names: Sequence[str]) -> None:
        self._written.setdefault(path, Counter()).update(names)

    @property
    def story(self) -> ConversationStory:
        ranked = tuple(name for name, times in self._uses.most_common() if times > 1)
        in_files = {path: self._used_of(found) for path, found in self._written.items()}
        steps, calls = tuple(self._steps), tuple(self._calls[-3:])
        return ConversationStory(self._collector.facts, ranked, in_files, steps, calls, self._earlier)

    def _used_of(self, found: Counter[str]) -> tuple[str, ...]:
        """Those that user and assistant used themselves, the most used first."""
        own = (name for name in found if name in self._uses)
        return tuple(sorted(own, key=lambda name: -self._uses[name])[:NAMES])


def _find_used_names(message: Message) -> list[str]:
    own = [message.text, *(text for use in message.tool_uses for text in _own(use))]
    return sorted(find_names("\n".join(own)))


def _find_step(message: Message) -> str:
    return to_bounded_line(_telling(message.text), STEP)


def _find_changed_names(use: ToolUse) -> list[str]:
    about = summarise_call(use).about
    text = "\n".join(t for t in iterate_strings(use.input) if t != about)
    return [*_DEFINES.findall(text), *sorted(find_names(text))]


REMEMBERED: Final = 200  # Messages whose names are known: notes are written about the same ones again
_TELLING: Final = IdentityCache(_find_step, REMEMBERED)
_USED: Final = IdentityCache(_find_used_names, REMEMBERED)
_CHANGED: Final = IdentityCache(_find_changed_names, REMEMBERED)


# --- who said it ----------------------------------------------------------------------------------------

EARLIER: Final = "earlier"  # By whom a text is that stands for others


def _placed(conversation: OfflineConversation, places: Sequence[int]) -> Iterator[PlacedMessage]:
    """Each message with who said it. A request to a fork and the replies to it are left out."""
    directed = False
    for at in places:
        message = conversation.messages[at]
        if message.role == "user":
            directed = _directs(message) or (directed and bool(message.results))
        if not directed:
            yield from _place(conversation, at)
        elif message.role == "user":
            answered = tuple(one for one in message.results if not _is_running(one))
            yield PlacedMessage(at, Message("user", answered), "context", MessageSize())


def _place(conversation: OfflineConversation, at: int) -> Iterator[PlacedMessage]:
    message = conversation.messages[at]
    if message.role == "assistant":
        yield PlacedMessage(at, message, "model", MessageSize())
    else:
        yield from _told(at, message, "context" if at in conversation.added else "user")


def _is_running(block: Block) -> bool:
    return isinstance(block, ToolResult) and block.text.startswith("[still running")


def _told(at: int, message: Message, by: str) -> Iterator[PlacedMessage]:
    """Split off texts that stand for others from what is said here."""
    blocks: list[Block] = []
    for block in message.content:
        if not isinstance(block, Text):
            blocks += [] if _is_running(block) else [block]
            continue
        text, earlier = _split(block.text)
        for one in earlier:
            yield PlacedMessage(at, Message("user", (Text(one),)), EARLIER, MessageSize())
        text = text.strip() if by == "user" else "" if earlier else block.text
        if text and not text.startswith(_GO_ON):
            blocks.append(Text(text))
    yield PlacedMessage(at, Message("user", tuple(blocks)), by, MessageSize())


def _split(text: str) -> tuple[str, list[str]]:
    """Split a message: what a person typed, and the texts that stand for others."""
    if parse_arrival(text):
        return "", []
    if len(_SECTION.findall(text)) >= _ENOUGH and not _STANDS_FOR.match(text):
        return "", [text]
    words, added = split_added(text)
    return words, [f"<{one.tag}>{one.text}" for one in added if one.tag in STANDING]


# --- words ----------------------------------------------------------------------------------------------

_CHOICES: Final = ("output_mode", "status", "priority", "type", "subagent_type")
"""Arguments that choose among a tool's own words."""
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_INTENDS: Final = re.compile(
    r"(?:now |next,? |first,? |then |and )*(?:let me|let's|i'll|i will|i need to|i should|i want to)\b"
    r"|(?:现在|接下来|首先|然后)*(?:让我|我来|我先|我将|我要)",
    re.IGNORECASE,
)
_LITTLE: Final = 30  # Bytes: a shorter sentence says something only if it names something


def _own(use: ToolUse) -> Iterator[str]:
    return iterate_strings({key: value for key, value in use.input.items() if key not in _CHOICES})


def _telling(text: str) -> str:
    """The first sentence that says what was found or done; else the first that says what will be."""
    bare = (part.strip().lstrip("#*-> ").rstrip(":：*") for part in _SENTENCE.split(text[:4_000]))
    told = [one for one in bare if count_bytes(one) >= _LITTLE or find_names(one)]
    return next((one for one in told if not _INTENDS.match(one)), told[0] if told else "")


MOST: Final = 60
"""Lines of one kind."""
LONGEST_PATH: Final = 500
QUOTE: Final = 1_200  # Bytes of what the user said, where not all of it has to be there
CUT: Final = 40  # Bytes that say how much was cut
LEAST: Final = 80  # Bytes; what was said and would have to be cut below this is left out, and that is said
FEWER: Final = (20, 10, 6, 3)  # Names that are told of each file, when all of them do not fit
KINDS: Final = ("files", "stored", "commands", "errors", "answers")
GAVE, MORE = " gave: ", " gave more than is shown: "
CAME_UP: Final = "Names that came up more than once: "
LEFT_OUT: Final = "- … (earlier ones are left out)"
SOME_LEFT_OUT: Final = "- … ({:,} of them are left out here)"
Render: TypeAlias = Callable[[int], str]  # A text of at most so many bytes
_CORRECTS: Final = re.compile(
    r"^\s*(?:no\b|nope\b|not\b|don'?t\b|do not\b|stop\b|wait\b|actually\b|instead\b|wrong\b|that'?s not\b"
    r"|不要|不是|不对|别|错了|停)"
    r"|\b(?:should not|shouldn'?t|instead of|rather than|never|always|must not)\b"
    r"|应该|必须|改成|不能|一定要",
    re.IGNORECASE,
)
_CALL: Final = re.compile(r"`(?P<about>.+?)`(?= ×| worked| failed| gave)")
_FILE: Final = re.compile(
    r"(?P<about>\S.*?) \((?=changed|read)(?:changed (?P<changes>\d+)×)?(?:, )?(?:read (?P<reads>\d+)×)?\)"
    r"(?:: (?P<names>.*))?"
)
_ELSEWHERE: Final = ("(cleared", "[cleared", "</persisted-output")
_QUOTED: Final = re.compile(r"(?P<about>(?P<kind>To|The user:) “.*?”)(?=: |$)")
_BEGUN: Final = re.compile(r"^- (Asked for at the beginning: “.*”)$", re.MULTILINE)
_REQUEST: Final = re.compile(r"^.{0,8}primary request", re.IGNORECASE | re.MULTILINE)
"""The beginning of a summary, after whatever thoughts stand before it."""


# --- lines ----------------------------------------------------------------------------------------------


def format_requests(story: ConversationStory) -> list[str]:
    """The first thing that was asked for, and the last."""
    said = story.said
    if begun := _BEGUN.search(story.earlier):
        return [begun[1], *format_wanted(story)]
    first = [f"Asked for at the beginning: “{to_bounded_line(text, QUOTE // 2)}”" for text in said[:1]]
    return first if len(said) < 2 else [*first, *format_wanted(story)]


def format_wanted(story: ConversationStory) -> list[str]:
    said = story.said
    return [f"Asked for last: “{to_bounded_line(said[-1], QUOTE // 2)}”"] if said else []


def format_corrections(story: ConversationStory) -> list[str]:
    return [f"The user: “{to_bounded_line(t, 400)}”" for t in story.said[1:] if _CORRECTS.search(t)]


def format_files(story: ConversationStory) -> list[str]:
    """Those that were changed last, as they are needed most; with the names that were used of each."""
    ordered = sorted(story.facts.files, key=lambda one: one.changes > 0)
    return [_file(one, story.in_files.get(one.path, ())) for one in ordered[-MOST:]]


def _file(one: FileFact, names: Sequence[str]) -> str:
    done = [f"changed {one.changes}×"] if one.changes else []
    done += [f"read {one.reads}×"] if one.reads else []
    defined = f": {', '.join(names)}" if names else ""
    return f"{to_bounded_line(one.path, LONGEST_PATH)} ({', '.join(done)}){defined}"


def format_commands(story: ConversationStory) -> list[str]:
    return [
        f"`{one.text}`{f' ×{one.times}' if one.times > 1 else ''} "
        f"{'failed' if one.failed else 'worked'}{f': {one.said}' if _printed(one.said) else ''}"
        for one in story.facts.commands[-MOST:]
    ]


def _printed(text: str) -> bool:
    """True if a command printed this, and it does not only say where that is."""
    return bool(text) and not text.startswith(_ELSEWHERE)


def format_errors(story: ConversationStory) -> list[str]:
    return [
        f"`{one.call}`{GAVE}{one.error} ({'it worked later' if one.worked else 'still open'})"
        for one in story.facts.troubles[-MOST:]
    ]


def format_unsolved(story: ConversationStory) -> list[str]:
    open_ = [one for one in story.facts.troubles if not one.worked][-5:]
    return [f"Not seen to work since it failed: `{one.call}`, {one.error}" for one in open_]


def format_unanswered(story: ConversationStory) -> list[str]:
    """The user's words since the last answer."""
    last = max((n for n, one in enumerate(story.facts.said, 1) if one.answer), default=0)
    waiting = [one.text for one in story.facts.said[last:] if one.text.strip()]
    return [f"Not answered yet: “{to_bounded_line(text, 200)}”" for text in waiting]


def answer_lines(story: ConversationStory) -> list[str]:
    said = [one for one in story.facts.said if one.answer]
    return [f"To “{to_bounded_line(one.text, 80)}”: {one.answer}" for one in said[-MOST:]]


def format_stored_results(story: ConversationStory) -> list[str]:
    kept = story.facts.kept[-20:]
    return [f"`{one.call}`{MORE}{to_bounded_line(one.path, LONGEST_PATH)}" for one in kept]


def format_steps(story: ConversationStory) -> tuple[list[str], list[str]]:
    """The assistant's words about its work, for all that was asked before and for what was asked last."""
    said, out = ["", *story.said], dict[int, list[str]]()
    told = to_bounded_line(story.facts.working, QUOTE)
    for step in story.steps[-2 * MOST :]:
        if step is story.steps[-1] and step.text.rstrip("…") in told:
            continue  # told as the last words
        asked = step.asked if step.asked < len(said) else 0
        known = out.setdefault(asked, [f"For “{to_bounded_line(said[asked], 80)}”:"] if asked else [])
        known.append(step.text)
    now = out.pop(len(said) - 1, [])
    return [text for lines in out.values() for text in lines], now


def format_state(story: ConversationStory) -> list[str]:
    """Where things stand: the last words, the last calls."""
    said = [f"Said last: {to_bounded_line(story.facts.working, QUOTE)}"] if story.facts.working else []
    return [*said, f"Called last: {'; '.join(story.calls)}"] if story.calls else said


def read_next_lines(story: ConversationStory) -> list[str]:
    if story.said and not format_unanswered(story):
        return ["What was asked last is answered: see what the user wants next"]
    return [f"Go on with “{to_bounded_line(said, 120)}”" for said in story.said[-1:]]


def excerpt_summary(text: str, room: int) -> str:
    """Of an earlier summary by someone else, as much as there is room for."""
    head = "From an earlier summary:"
    if not text or room < 2 * LEAST:
        return ""
    begins = _REQUEST.search(text)
    lines = text[begins.start() if begins else 0 :].splitlines()
    flat = "\n".join(f"> {one.strip()}" for one in lines if one.strip())
    return f"{head}\n{_cut(flat, room - count_bytes(head) - 1)}"


def format_new_names(words: Iterable[str], told: str, room: int) -> str:
    """Names that are not told yet, on one line."""
    kept, known = list[str](), find_names(told)
    room -= len(CAME_UP) + 2
    for word in words:
        if word not in known:
            room -= len(word) + 2
            if room < 0:
                break
            kept.append(word)
    return f"- {CAME_UP}{', '.join(kept)}" if kept else ""


# --- what was told before -------------------------------------------------------------------------------


def find_line_subject(text: str) -> str:
    """The subject of a line: another line about the same takes its place."""
    found = _CALL.match(text) or _FILE.match(text) or _QUOTED.match(text)
    return found["about"] if found else text


def merge_lines(old: Iterable[str], new: Sequence[str]) -> list[str]:
    """Lines of an earlier telling that are about something else, and then the new ones."""
    earlier = {find_line_subject(text): text for text in old}
    out: dict[str, str] = {}
    for text in new:
        key = find_line_subject(text)
        if (before := earlier.pop(key, None)) is not None:
            text = _both(before, text)
        out.pop(key, None)
        out[key] = text
    return [*earlier.values(), *out.values()]


def _both(old: str, new: str) -> str:
    """Join two lists. What is seen again may be the newest part: of a file all is kept that was done to it,
    and of a command what it printed.
    """
    one, two = _FILE.fullmatch(old), _FILE.fullmatch(new)
    if not one or not two:
        return old if old.startswith(f"{new}: ") else new
    changes, reads = (max(int(one[kind] or 0), int(two[kind] or 0)) for kind in ("changes", "reads"))
    known = [name for found in (two, one) for name in (found["names"] or "").split(", ") if name]
    return _file(FileFact(two["about"], reads, changes), list(dict.fromkeys(known))[:20])


def parse_story(text: str) -> dict[str, list[str]]:
    """The lines of an earlier telling, by kind. None for a text that was not told by us."""
    out: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for one in text.splitlines():
        if one.startswith("- ") and (kind := _kind(one[2:])):
            out[kind].append(one[2:])
    return out if out["files"] or CAME_UP in text else {kind: [] for kind in KINDS}


def parse_told_names(lines: Iterable[str]) -> list[str]:
    """The names that came up in an earlier telling."""
    told = [text for line in lines if (text := line.removeprefix("- ")).startswith(CAME_UP)]
    return [name for text in told for name in text.removeprefix(CAME_UP).split(", ")]


def _kind(text: str) -> str:
    if found := _CALL.match(text):
        rest = text[found.end() :]
        return "errors" if rest.startswith(GAVE) else "stored" if rest.startswith(MORE) else "commands"
    if _FILE.fullmatch(text):
        return "files"
    found = _QUOTED.match(text)
    return {"To": "answers", "The user:": "errors"}[found["kind"]] if found else ""


# --- within a room --------------------------------------------------------------------------------------


def format_list(lines: Sequence[str], room: int) -> str:
    """As a list within so many bytes; the oldest go first, and that is said."""
    out = [f"- {text}" for text in lines]
    if count_line_bytes(out) <= room:
        return "\n".join(out)
    room -= count_bytes(LEFT_OUT) + 1
    at = len(out)
    while at and (room := room - count_bytes(out[at - 1]) - 1) >= 0:
        at -= 1
    if at < len(out):
        return "\n".join([LEFT_OUT, *out[at:]])
    return f"- {to_bounded_line(lines[-1], room)}" if room >= LEAST else ""


def format_file_list(lines: Sequence[str], room: int) -> str:
    """As a list in which names go before files do."""
    for most in FEWER:
        fewer = [_with_names(text, most) for text in lines]
        if count_line_bytes(f"- {text}" for text in fewer) <= room:
            break
    return format_list(fewer, room)


def _with_names(text: str, most: int) -> str:
    head, _, names = text.partition("): ")
    return text if not names else f"{head}): {', '.join(names.split(', ')[:most])}"


def format_quotes(
    said: Sequence[str], room: int, before: str = "- ", after: str = "", most: int = 1 << 20
) -> str:
    """All that was said, each on its line: long ones are cut alike. Of too many the oldest one and the
    newest stay.
    """
    flat = [_flat(text) for text in said]
    around, note, gone = count_bytes(before + after) + 1, SOME_LEFT_OUT, 0
    fits = max(0, room - count_bytes(note) - 8) // (LEAST + around + CUT)
    if len(flat) > fits and count_line_bytes(f"{before}{text}{after}" for text in flat) > room:
        gone = len(flat) - fits
        flat = [*flat[: min(1, fits)], *flat[len(flat) - max(0, fits - 1) :]] if fits else []
        room -= count_bytes(note) + 8
    most = min(most, level_sizes([count_bytes(text) + around for text in flat], room) - around)
    out = [f"{before}{_flat(_cut(text, most))}{after}" for text in flat]
    if gone:
        out.insert(min(1, fits), note.format(gone))
    return "\n".join(out)


def _cut(text: str, most: int) -> str:
    return text if count_bytes(text) <= most else clip_text(text, max(0, most - CUT))


def _flat(text: str) -> str:
    return " ".join(text.split())


def share_room(parts: Sequence[tuple[float, Render]], room: int, most: int) -> list[str]:
    """Each part within its share of the room, by weight; what one does not need the others get.

    A part without weight takes what it needs.
    """
    texts = [render(most) for _, render in parts]
    needs = [count_bytes(text) for text in texts]
    open_ = [n for n, (weight, _) in enumerate(parts) if weight]
    left = room - sum(need for n, need in enumerate(needs) if n not in open_)
    while open_:
        unit = max(0, left) / sum(parts[n][0] for n in open_)
        content = [n for n in open_ if needs[n] <= parts[n][0] * unit]
        if not content:
            break
        left -= sum(needs[n] for n in content)
        open_ = [n for n in open_ if n not in content]
    for n in open_:
        texts[n] = parts[n][1](min(most, int(parts[n][0] * unit)))
    return texts


LONGEST: Final = 6_000
"""Tokens of a summary, where more would be allowed."""
OVERHEAD: Final = 600
"""Bytes of tags and headings."""
SECTION: Final = 0.4
"""The most of the room that one section takes."""
NAMES_SUMMARISING: Final = 0.15
SAID_SUMMARISING: Final = 0.2
"""The most that names take, and what the user said: the program that asked knows that word for word."""
QUOTE_SUMMARISING: Final = 300
NONE: Final = "None"
BY_RULE: Final = "Put together by rule, without a language model: it retells and concludes nothing"
_NAMED: Final = r"(?:the message that starts|your reply that starts|your call) “(.+?)”"
_BEGINS: Final = re.compile(rf"only what begins with {_NAMED}")
_STAYS: Final = re.compile(rf"^What begins with {_NAMED} stays", re.MULTILINE)
_WANTS: Final = re.compile(r"^The user wants this of the summary besides:\n(.+)", re.S | re.M)


def reply_to_summary(conversation: OfflineConversation, directive: Directive) -> tuple[Block, ...]:
    """A reply with an analysis of one sentence and a whole summary."""
    start, end = _stretch(conversation, directive.body)
    story = collect_story(conversation, start, end)
    room = int(min(conversation.room or LONGEST, LONGEST) / TEXT_RATE) - OVERHEAD
    asked = (to_bounded_line(w[1], QUOTE_SUMMARISING) for w in _WANTS.finditer(directive.body))
    wants = [f"Asked of this summary: “{one}”" for one in asked]
    bodies = _bodies(story, max(0, room), wants)
    titled = enumerate(zip(TITLES, bodies, strict=True), 1)
    sections = "\n\n".join(f"## {n}. {title}\n{body or NONE}" for n, (title, body) in titled)
    return (Text(f"<analysis>\n{BY_RULE}.\n</analysis>\n\n<summary>\n{sections}\n</summary>"),)


def reply_to_record(conversation: OfflineConversation, directive: Directive) -> tuple[Block, ...]:
    """The same of a record that is shown as text: nobody has typed it here."""
    record = tuple(one for message in conversation.messages for one in parse_record(message.text))
    return reply_to_summary(replace(conversation, messages=record, added=frozenset()), directive)


def _bodies(story: ConversationStory, room: int, wants: Sequence[str]) -> list[str]:
    old = parse_story(story.earlier)
    quote = "" if any(old.values()) else story.earlier
    stored = merge_lines(old["stored"], format_stored_results(story))
    files = merge_lines(old["files"], format_files(story))
    trouble = [*format_errors(story), *format_corrections(story)]
    before, now = format_steps(story)
    parts: list[tuple[float, Render]] = [
        (1.0, partial(format_list, [BY_RULE, *format_requests(story), *wants])),
        (4.0, partial(format_file_list, [*stored, *files])),
        (2.0, partial(format_list, merge_lines(old["errors"], trouble))),
        (1.5, partial(excerpt_summary, quote)),
        (2.5, partial(format_list, merge_lines(old["answers"], answer_lines(story)))),
        (1.0, partial(format_list, before)),
        (2.5, partial(format_list, merge_lines(old["commands"], format_commands(story)))),
        (0.5, partial(format_list, [*format_unsolved(story), *format_unanswered(story)])),
        (1.0, partial(format_list, now)),
        (1.5, partial(format_list, format_state(story))),
        (0.2, partial(format_list, read_next_lines(story))),
    ]
    said = format_quotes(story.said, int(room * SAID_SUMMARISING), "<said>", "</said>", QUOTE_SUMMARISING)
    left = room - count_bytes(said)
    told = share_room(parts, int(left * (1 - NAMES_SUMMARISING)), int(room * SECTION))
    request, files_, errors, *solved, pending, doing, state, following = told
    rest = min(left - sum(map(count_bytes, told)), int(room * NAMES_SUMMARISING))
    known = dict.fromkeys([*story.names, *parse_told_names(story.earlier.splitlines())])
    names = format_new_names(known, "\n".join(told), rest)
    solving, current = ("\n".join(filter(None, some)) for some in (solved, (doing, state)))
    return [request, names, files_, errors, solving, said, pending, current, following]


def _stretch(conversation: OfflineConversation, asked: str) -> tuple[int, int]:
    """The messages to summarise, where the directive names the first one or one that stays."""
    begins, stays = _BEGINS.search(asked), _STAYS.search(asked)
    last = len(conversation.messages)
    start = next(_starting(conversation, begins[1], range(last)), 0) if begins else 0
    end = next(_starting(conversation, stays[1], range(last)[::-1]), last) if stays else last
    return (start, end) if start < end else (0, last)


def _starting(conversation: OfflineConversation, words: str, places: Sequence[int]) -> Iterator[int]:
    """The places of messages that start so, or make such a call."""
    for at in places:
        message = conversation.messages[at]
        calls = [summarise_call(use).name for use in message.tool_uses[:1]]
        if any(" ".join(t.split()).startswith(words) for t in (message.text[:400], *calls)):
            yield at


# --- a record as text -------------------------------------------------------------------------------------

_OPENING: Final = re.compile(r"^<(user|assistant|tools)>\n", re.MULTILINE)
_CLOSING: Final = {
    role: re.compile(rf"\n</{role}>$", re.MULTILINE) for role in ("user", "assistant", "tools")
}
_TOLD_BLOCK: Final = re.compile(r"^\[(?=calls |result: |error: )", re.MULTILINE)
_TOLD_CALL: Final = re.compile(r"calls (\w+): (.*)\]\s*", re.DOTALL)
_TOLD_RESULT: Final = re.compile(r"(result|error): (.*)\]\s*", re.DOTALL)
_ARGUMENT: Final = re.compile(r'"(\w+)":("(?:[^"\\]|\\.)*")')


def parse_record(text: str) -> tuple[Message, ...]:
    """The messages of a record, as far as they can be told apart."""
    messages, waiting = list[Message](), list[str]()
    for n, (role, body) in enumerate(_split_record(text)):
        if role == "assistant":
            blocks = tuple(_parse_reply(body, n))
            waiting = [block.id for block in blocks if isinstance(block, ToolUse)]
        else:
            blocks = tuple(_parse_answers(body, waiting))
        if blocks:
            messages.append(Message("assistant" if role == "assistant" else "user", blocks))
    return tuple(messages)


def _split_record(text: str) -> Iterator[tuple[str, str]]:
    """Each part with who said it."""
    at = 0
    while opened := _OPENING.search(text, at):
        at = opened.end()
        if closed := _CLOSING[opened[1]].search(text, at):
            yield opened[1], text[at : closed.start()]
            at = closed.end()


def _parse_reply(body: str, n: int) -> Iterator[Block]:
    said, *calls = _TOLD_BLOCK.split(body)
    if said.strip():
        yield Text(said.strip())
    for i, call in enumerate(calls):
        if found := _TOLD_CALL.fullmatch(call):
            yield ToolUse(f"record-{n}-{i}", found[1], _parse_arguments(found[2]))


def _parse_answers(body: str, waiting: list[str]) -> Iterator[Block]:
    said, *results = _TOLD_BLOCK.split(body)
    for id, result in zip(waiting, results, strict=False):
        if found := _TOLD_RESULT.fullmatch(result):
            yield ToolResult(id, found[2], is_error=found[1] == "error")
    if said.strip():
        yield Text(said.strip())


def _parse_arguments(text: str) -> Json:
    """The arguments of a call; of one that was cut, those that are whole."""
    value = _decode(text)
    if isinstance(value, dict):
        return value
    whole = ((name, _decode(one)) for name, one in _ARGUMENT.findall(text))
    return {name: one for name, one in whole if one is not None}


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
