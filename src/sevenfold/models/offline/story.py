"""What a conversation says about itself, as the offline engine needs it to retell it.

Everything in a story was said or done by the user or the assistant, or is the end of what a tool printed.
Nothing is understood, so nothing is made up; and what a tool printed is quoted, never obeyed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from sevenfold.facts import Collector, Facts, call_of, line
from sevenfold.fidelity import names_in, strings
from sevenfold.messages import Block, Message, Text, ToolResult, ToolUse
from sevenfold.models.directives import parse_directive
from sevenfold.models.offline.view import Conversation, arrival, split_added
from sevenfold.tokens import Size, byte_length
from sevenfold.transcript import Placed

STEP: Final = 200
"""Bytes of what the assistant says before it calls tools."""
NAMES: Final = 16
"""Names that are told of one file."""
SAID: Final = 3
"""How often it counts that the user says a name, where the assistant's saying it counts once."""
_DEFINES: Final = re.compile(
    r"\b(?:def|class|func|function|fn|type|struct|enum|trait|interface|const)\s+(?:\([^)\n]*\)\s*)?"
    r"([A-Za-z_]\w{3,})"
)
_GO_ON: Final = "Your last reply was cut off at its length limit."
"""How a turn begins when it wants the rest of a reply: nobody typed that."""
NOTES: Final = "session-notes"
STANDING: Final = ("summary", NOTES, "digest", "collapsed", "snipped")
"""The tags around what a compaction has put in place of messages."""
_STANDS_FOR: Final = re.compile(rf"\s*<(?:{'|'.join(STANDING)})>")
_SECTION: Final = re.compile(
    r"^[#*\d.): \t]*+(?:primary request|files and code|errors and fix|pending task|current work)",
    re.IGNORECASE | re.MULTILINE,
)
_ENOUGH: Final = 3
"""So many headings of a summary make one, whoever wrote it."""


class Step(msgspec.Struct, frozen=True):
    """What the assistant said when it went on to call tools, and for which message of the user."""

    asked: int
    text: str


class Story(msgspec.Struct, frozen=True):
    facts: Facts
    names: tuple[str, ...]
    """Names that user and assistant used more than once, the most used first."""
    in_files: dict[str, tuple[str, ...]]
    """Names that were written into a file, or defined in one that was read, and used."""
    steps: tuple[Step, ...] = ()
    calls: tuple[str, ...] = ()
    earlier: str = ""
    """The newest text that stands for what was before: a summary or a digest."""

    @property
    def said(self) -> list[str]:
        return [one.text.strip() for one in self.facts.said if one.text.strip()]


def story_of(conversation: Conversation, start: int = 0, end: int | None = None) -> Story:
    """What the messages between two places say; requests to forks are no part of it."""
    telling = _Telling()
    for placed in _placed(conversation, range(len(conversation.messages))[start:end]):
        telling.take(placed)
    return telling.story


class _Telling:
    def __init__(self) -> None:
        self._collector = Collector()
        self._uses: Counter[str] = Counter()
        self._written: dict[str, Counter[str]] = {}
        self._open: dict[str, str] = {}
        self._steps: list[Step] = []
        self._calls: list[str] = []
        self._asked, self._earlier = 0, ""

    def take(self, placed: Placed) -> None:
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
        self._read(message)
        if placed.by == "user" and message.text.strip():
            self._asked += 1
            self._use(message.text, SAID)

    def _act(self, message: Message) -> None:
        own = [message.text, *(text for use in message.tool_uses for text in _own(use))]
        self._use("\n".join(own), 1)
        for use in message.tool_uses:
            call = call_of(use)
            self._calls.append(call.name)
            if call.kind == "change":
                text = "\n".join(t for t in strings(use.input) if t != call.about)
                self._in(call.about, [*_DEFINES.findall(text), *sorted(names_in(text))])
            elif call.kind == "read":
                self._open[use.id] = call.about
        if message.tool_uses and (words := line(_telling(message.text), STEP)):
            self._steps.append(Step(self._asked, words))

    def _read(self, message: Message) -> None:
        for result in message.results:
            if (path := self._open.pop(result.tool_use_id, None)) and not result.is_error:
                self._in(path, _DEFINES.findall(result.text))

    def _use(self, text: str, times: int) -> None:
        for name in sorted(names_in(text)):
            self._uses[name] += times

    def _in(self, path: str, names: Sequence[str]) -> None:
        self._written.setdefault(path, Counter()).update(names)

    @property
    def story(self) -> Story:
        ranked = tuple(name for name, times in self._uses.most_common() if times > 1)
        in_files = {path: self._used_of(found) for path, found in self._written.items()}
        return Story(
            self._collector.facts,
            ranked,
            in_files,
            tuple(self._steps),
            tuple(self._calls[-3:]),
            self._earlier,
        )

    def _used_of(self, found: Counter[str]) -> tuple[str, ...]:
        """Those that user and assistant used themselves, the most used first."""
        own = [name for name in found if name in self._uses]
        own.sort(key=lambda name: -self._uses[name])
        return tuple(own[:NAMES])


# --- who said it ----------------------------------------------------------------------------------------

EARLIER: Final = "earlier"
"""By whom a text is that stands for others."""


def _placed(conversation: Conversation, places: Sequence[int]) -> Iterator[Placed]:
    """Each message with who said it. A request to a fork and the replies to it are left out."""
    directed = False
    for at in places:
        message = conversation.messages[at]
        if message.role == "assistant":
            if not directed:
                yield Placed(at, message, "model", Size())
            continue
        asked = any(_is_directive(block) for block in message.content)
        directed = asked or (directed and bool(message.results))
        if directed:
            answered = tuple(one for one in message.results if not _is_running(one))
            yield Placed(at, Message("user", answered), "context", Size())
        else:
            yield from _told(at, message, "context" if at in conversation.added else "user")


def _is_directive(block: Block) -> bool:
    return isinstance(block, Text) and parse_directive(block.text) is not None


def _is_running(block: Block) -> bool:
    """Whether it only says that a tool has not answered yet."""
    return isinstance(block, ToolResult) and block.text.startswith("[still running")


def _told(at: int, message: Message, by: str) -> Iterator[Placed]:
    """What stands for others, and apart from it what is said here."""
    blocks: list[Block] = []
    for block in message.content:
        if not isinstance(block, Text):
            blocks += [] if _is_running(block) else [block]
            continue
        text, earlier = _split(block.text)
        for one in earlier:
            yield Placed(at, Message("user", (Text(one),)), EARLIER, Size())
        text = text.strip() if by == "user" else "" if earlier else block.text
        if text and not text.startswith(_GO_ON):
            blocks.append(Text(text))
    yield Placed(at, Message("user", tuple(blocks)), by, Size())


def _split(text: str) -> tuple[str, list[str]]:
    """What a person typed, without what programs put around it, and the texts that stand for others."""
    if arrival(text):
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
_LITTLE: Final = 30
"""Bytes: a shorter sentence says something only if it names something."""


def _own(use: ToolUse) -> Iterator[str]:
    """What the assistant wrote itself when it made this call."""
    return strings({key: value for key, value in use.input.items() if key not in _CHOICES})


def _telling(text: str) -> str:
    """The first sentence that says what was found or done; else the first that says what will be."""
    told = [one for part in _SENTENCE.split(text[:4_000]) if _says_something(one := _bare(part))]
    return next((one for one in told if not _INTENDS.match(one)), told[0] if told else "")


def _bare(sentence: str) -> str:
    return sentence.strip().lstrip("#*-> ").rstrip(":：*")


def _says_something(sentence: str) -> bool:
    return byte_length(sentence) >= _LITTLE or bool(names_in(sentence))
