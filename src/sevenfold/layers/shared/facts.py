"""The facts of a stretch of conversation, collected without a model: the user's words, files touched,
commands, failures, stored results. Facts of an earlier compaction are included, so a digest of a digest is
one digest. `format_quotes` quotes the user: whole where there is room, else shortened by one rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from sevenfold.core.messages import (
    THOUGHTS,
    Block,
    Document,
    Image,
    Json,
    Message,
    Opaque,
    Text,
    ToolResult,
    ToolUse,
    strip_half_characters,
)
from sevenfold.core.tokens import count_bytes
from sevenfold.core.transcript import PlacedMessage
from sevenfold.memory.recall_results import BY as RECALLED

TYPED: Final = ("user", "")  # Authors that are people; texts of the program stand apart
PROMPTED: Final = "turn"  # Asks for the rest of a reply that was cut: nothing anyone needs later
MOST: Final = 500
"""Files, commands, errors, stored results and contexts that are remembered, each; the oldest go first."""
LINE: Final = 300
WORDS: Final = 2_000
ANSWER: Final = 400
"""Bytes of a line of tool output, of the last words, and of an answer to an earlier question."""

LONGEST_ERROR: Final = 200  # Characters of the line that says what went wrong
CALLS: Final = 512  # Calls that are remembered as they were told, for all who ask about the same stretch

_HAN: Final = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
WORD: Final = rf"[{_HAN}]|[^\W{_HAN}]+"
"""A word, or a character of a language that is written without spaces."""
_PATHS: Final = ("file_path", "notebook_path", "path", "filepath", "filename", "file")
_COMMANDS: Final = ("command", "cmd", "script")
_PART: Final = r"[A-Z]?[a-z]+"  # Of a name that is put together
_CHANGES: Final = frozenset(
    ["write", "edit", "create", "insert", "replace", "patch", "delete", "remove", "update", "move"]
)
_READS: Final = frozenset(["read", "view", "open", "cat", "show"])
_FAILED: Final = r"(?:Traceback \(|fatal: |[Ee]rror: |Exit code [1-9])"
_FAILING: Final = ("Traceback (", "fatal: ", "Error: ", "error: ", "Exit code ")
_WRONG: Final = (
    r"(?i)error|fail|fatal|panic|exception|denied|refused|undefined|not found|no such|cannot|can't|unable"
    "|错误|失败|异常|找不到|不存在"
)
_POINTER: Final = (
    r"(?:\bin|\bto:?)\s+((?:/|[A-Za-z]:[\\/])(?:(?! in /)[^\n])*?"
    r"[\\/]tool-results[\\/][^\n\\/]*?\.(?:txt|json))(?=[\]\s]|$)"
)
_POINTERS: Final = ("<persisted-output", "(cleared: ")
_POINTING: Final = 1_200  # Characters in which an envelope or a marker has named its file


class UserTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text of the user, and the beginning of the answer."""

    text: str
    answer: str = ""


class FileFact(msgspec.Struct, frozen=True, omit_defaults=True):
    path: str
    reads: int = 0
    changes: int = 0
    size: int = 0  # Bytes of the last result


class CommandFact(msgspec.Struct, frozen=True, omit_defaults=True):
    text: str
    times: int = 0
    failed: bool = False
    said: str = ""  # The end of what it printed last


class FailedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that failed, and whether the same was tried again and worked."""

    call: str
    error: str
    worked: bool = False


class StoredResult(msgspec.Struct, frozen=True):
    """The path of a whole result, and its call."""

    path: str
    call: str


class Facts(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that is known of a stretch without a model, and what a model wrote about it."""

    messages: int = 0
    said: tuple[UserTurn, ...] = ()
    contexts: tuple[str, ...] = ()
    """Texts of the program: where the model is, what hooks added, summaries by others."""
    account: str = ""  # The newest summary or notes that a model wrote; it stands for those before
    working: str = ""  # The last words of the assistant
    files: tuple[FileFact, ...] = ()
    commands: tuple[CommandFact, ...] = ()
    troubles: tuple[FailedCall, ...] = ()
    kept: tuple[StoredResult, ...] = ()
    others: dict[str, int] = {}  # Calls of every other tool


def extract_words_beside(message: Message) -> str:
    """What somebody said beside results, in one message: clients put tags around texts of their own."""
    if not message.results:
        return ""
    texts = (block.text for block in message.content if isinstance(block, Text))
    return "\n".join(text for text in texts if text.strip() and not text.lstrip().startswith("<"))


class FactCollector:
    """Takes messages in order and knows the facts of all of them."""

    def __init__(self) -> None:
        self._messages, self._working, self._account = 0, "", ""
        self._said: list[UserTurn] = []
        self._contexts: dict[str, None] = {}
        self._files: dict[str, FileFact] = {}
        self._commands: dict[str, CommandFact] = {}
        self._troubles: dict[str, FailedCall] = {}
        self._kept: dict[str, StoredResult] = {}
        self._others: dict[str, int] = {}
        self._open: dict[str, ToolUse] = {}

    def go_on(self, earlier: Facts) -> None:
        """Take in what an earlier compaction knew, in its place: counts add up, the newest word counts."""
        self._messages += earlier.messages
        self._account = earlier.account or self._account
        self._working = earlier.working or self._working
        self._said += earlier.said
        for text in earlier.contexts:
            _newest(self._contexts, text, None)
        for file in earlier.files:
            was = self._files.get(file.path, FileFact(file.path))
            reads, changes = was.reads + file.reads, was.changes + file.changes
            _newest(self._files, file.path, FileFact(file.path, reads, changes, file.size))
        for command in earlier.commands:
            known = self._commands.get(command.text)
            times = command.times + (known.times if known else 0)
            _newest(self._commands, command.text, replace(command, times=times))
        for trouble in earlier.troubles:
            _newest(self._troubles, trouble.call, trouble)
        for kept in earlier.kept:
            _newest(self._kept, kept.path, kept)
        for tool, times in earlier.others.items():
            self._others[tool] = self._others.get(tool, 0) + times

    def take(self, placed: PlacedMessage) -> None:
        self._messages += 1
        message = placed.message
        if message.role == "assistant":
            self._answered(message)
            return
        rest: list[Block] = []
        for block in message.content:
            if isinstance(block, ToolResult):
                if use := self._open.pop(block.tool_use_id, None):
                    self._called(summarise_call(use), block)
            elif not isinstance(block, THOUGHTS):
                rest.append(block)
        if placed.by == "tools" and (words := extract_words_beside(message)):
            self._told("user", words, [])
        elif rest:
            self._told(placed.by, message.text, [b for b in rest if not isinstance(b, Text)])

    def _told(self, by: str, text: str, media: list[Block]) -> None:
        if by in TYPED and (text.strip() or media):
            images, documents = (sum(isinstance(b, kind) for b in media) for kind in (Image, Document))
            self._said.append(UserTurn(text + "\n[an image]" * images + "\n[a document]" * documents))
        elif by not in (PROMPTED, RECALLED) and text.strip():
            _newest(self._contexts, text, None)

    def _answered(self, message: Message) -> None:
        words = ""
        self._open = {}
        for block in message.content:
            if isinstance(block, ToolUse):
                self._open[block.id] = block
            elif isinstance(block, Text):
                words += block.text
        if not words.strip():
            return
        self._working = words
        if not self._open and self._said:
            self._said[-1] = replace(self._said[-1], answer=to_bounded_line(words, ANSWER))

    def _called(self, call: CallFact, result: ToolResult) -> None:
        text, name = result.text, call.name
        if text.startswith(_POINTERS) and (path := find_pointed_file(text)):
            _newest(self._kept, path, StoredResult(path, name))
        failed = result.is_error or re.match(_FAILED, text) is not None
        if failed:
            _newest(self._troubles, name, FailedCall(name, take_both_ends(text)))
        elif (trouble := self._troubles.get(name)) and not trouble.worked:
            self._troubles[name] = replace(trouble, worked=True)
        if call.kind == "command":
            was = self._commands.get(name)
            said = to_bounded_line(find_last_line(text), LINE // 2)
            times = was.times + 1 if was else 1
            _newest(self._commands, name, CommandFact(name, times, failed, said))
        elif call.kind == "other":
            self._others[call.about] = self._others.get(call.about, 0) + 1
        elif not failed:
            file, read = self._files.get(call.about, FileFact(call.about)), call.kind == "read"
            reads, changes = file.reads + read, file.changes + (not read)
            _newest(self._files, call.about, FileFact(call.about, reads, changes, count_bytes(text)))

    @property
    def facts(self) -> Facts:
        return Facts(
            self._messages,
            tuple(self._said),
            _last(self._contexts),
            self._account,
            clip_text(self._working.strip(), WORDS),
            _last(self._files.values()),
            _last(self._commands.values()),
            _last(self._troubles.values()),
            _last(self._kept.values()),
            self._others,
        )


def _newest(known: dict[str, Any], key: str, value: object) -> None:
    known.pop(key, None)
    known[key] = value


def _last(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(values)[-MOST:]


# --- the same thing asked twice --------------------------------------------------------------------------

_Of = TypeVar("_Of")


class IdentityCache(Generic[_Of]):
    """A cache for values made from the last objects asked about; objects are compared by identity.

    One compaction asks about the same messages from several sides, and a message that stands for others
    is looked at before every request.
    """

    def __init__(self, make: Callable[[Any], _Of], most: int) -> None:
        self._make, self._most = make, most
        self._made: dict[int, tuple[object, _Of]] = {}

    def of(self, thing: object) -> _Of:
        known = self._made.get(id(thing))
        if known is not None and known[0] is thing:
            return known[1]
        made = self._make(thing)
        if len(self._made) >= self._most:
            self._made.pop(next(iter(self._made)), None)
        self._made[id(thing)] = thing, made  # as long as it is kept, nothing else gets its number
        return made


# --- calls --------------------------------------------------------------------------------------------


class CallFact(msgspec.Struct, frozen=True):
    """A call in one line, the same for the same thing tried again; what kind it is, and about what."""

    name: str
    kind: str  # `read` or `change` of a file, `command`, or `other`
    about: str


def summarise_call(use: ToolUse) -> CallFact:
    """A tool that names a file reads or changes it; one that does both says which as its command."""
    return _CALLS.of(use)


def _told(use: ToolUse) -> CallFact:
    paths = (use.input.get(key) for key in _PATHS)
    path: str = next((value for value in paths if isinstance(value, str) and value), "")
    command = _command(use.input)
    if path and (not command or " " not in command):
        words = {word.lower() for word in re.findall(_PART, command or use.name)}
        if kind := "change" if words & _CHANGES else "read" if words & _READS else "":
            return CallFact(to_bounded_line(f"{use.name} {path}", LINE), kind, path)
    if command:
        return CallFact(to_bounded_line(command, LINE), "command", command)
    words_of = [v for v in use.input.values() if isinstance(v, str)]
    return CallFact(to_bounded_line(" ".join([use.name, *words_of]), LINE // 2), "other", use.name)


_CALLS: Final = IdentityCache(_told, CALLS)


def _command(args: Json) -> str:
    for key in _COMMANDS:
        command = args.get(key)
        if isinstance(command, list):  # as the arguments of a program
            command = " ".join(map(str, command))
        if isinstance(command, str) and command.strip():
            return command
    return ""


def find_error_line(result: ToolResult) -> str:
    """The line of a failed result that says what went wrong, as far as one can tell by rule."""
    text = result.text
    if not (result.is_error or text.startswith(_FAILING)):
        return ""
    near = text if len(text) <= 8_000 else f"{text[:4_000]}\n{text[-4_000:]}"
    lines = [one.strip() for one in near.splitlines() if re.search(WORD, one)]
    lines = [one for one in lines if not one.startswith("Exit code ")]
    telling = [one for one in lines if re.search(_WRONG, one)]
    return (telling or lines or [""])[-1 if telling else 0][:LONGEST_ERROR]


def find_pointed_file(text: str) -> str:
    """The file that an envelope or a marker names as the place of the whole result."""
    found = re.findall(_POINTER, text[:_POINTING])
    return str(found[0 if text.startswith("<") else -1]) if found else ""


# --- words --------------------------------------------------------------------------------------------


def to_bounded_line(text: str, most: int) -> str:
    """On one line, and at most so many bytes of it."""
    flat = " ".join(text[: 2 * most].split())
    if count_bytes(flat) <= most and len(text) <= 2 * most:
        return flat
    return flat.encode("utf-8", "replace")[: most - 3].decode("utf-8", "ignore") + "…"


def find_last_line(text: str) -> str:
    return text[-4 * LINE :].rstrip().rpartition("\n")[2]


def take_both_ends(text: str) -> str:
    """The beginning and the end of an error: one of the two says what was wrong."""
    text = text.strip()
    if len(text) <= LINE // 2 or "\n" not in text:
        return to_bounded_line(text, LINE)
    first = to_bounded_line(text.partition("\n")[0], LINE // 2)
    last = to_bounded_line(find_last_line(text), LINE // 2)
    return first if first == last else f"{first} … {last}"


def clip_text(text: str, most: int, where: str = "") -> str:
    """At most about so many bytes: the beginning, the end, and a note of what is missing between."""
    if (size := count_bytes(text)) <= most:
        return text
    data = text.encode("utf-8", "replace")
    head = data[: max(0, most * 2 // 3)].decode("utf-8", "ignore")
    tail = data[size - max(0, most // 3) :].decode("utf-8", "ignore") if most >= 3 else ""
    gone = size - count_bytes(head) - count_bytes(tail)
    return f"{head}\n[… {gone:,} bytes left out{where} …]\n{tail}".strip("\n")


LONG: Final = 1_000  # Bytes: a message that is longer may be cut to this before others have to suffer
LEAST: Final = 200  # Bytes; below this it is better to leave an old message out and say so
Cutting: TypeAlias = Literal["none", "long", "all"]
"""The messages that may be cut when all of them do not fit."""
Numbered: TypeAlias = Sequence[tuple[int, str]]

_WHERE: Final = (
    "Nothing is lost. The whole conversation is in {path}, one JSON record a line. Look there before you "
    "guess, ask the user again or do something twice: search the file for a word (Grep), then Read around "
    "the line that is found."
)
_SOMEWHERE: Final = (
    "Nothing is lost: the program that runs this conversation has all of it on record. Ask the user for "
    "what you miss."
)
_LEFT_OUT: Final = "[{:,} messages of the user are left out here]"
_NOTE: Final = count_bytes("\n[… 000,000,000 bytes left out …]\n")


def number_turns(said: Iterable[UserTurn]) -> Numbered:
    """Counted from the first thing that the user said."""
    return [(n, one.text) for n, one in enumerate(said, 1)]


def format_quote(n: int, text: str, more: str = "") -> str:
    return f'<said n="{n}"{more}>\n{escape_quote(text)}\n</said>'


def escape_quote(text: str) -> str:
    """Without anything that would end a quotation before its end."""
    return text.replace("</said>", "<\\/said>")


def format_quotes(
    said: Numbered, room: int, *, cutting: Cutting = "all", last_whole: bool = False
) -> list[str] | None:
    """At most so many bytes of what was said; None when it does not fit and may not be cut like this.

    `last_whole`: the last of them stands nowhere else. It is not cut, whatever the room.
    """
    last = [format_quote(*said[-1], " newest")] if said and last_whole else []
    if sum(count_bytes(text) for _, text in said) <= room:  # else it is not worth quoting all of it
        whole = [*(format_quote(n, text) for n, text in said[: len(said) - len(last)]), *last]
        if count_line_bytes(whole) <= room:
            return whole
    if cutting == "none":
        return None
    left = room - count_line_bytes(last)
    cut = _cut(said[:-1] if last_whole else said, left, LONG if cutting == "long" else LEAST)
    return None if cut is None else [*cut, *last]


def _cut(said: Numbered, room: int, least: int) -> list[str] | None:
    """None when messages would be left out, or cut below `least`, and only long ones may be cut."""
    room -= count_bytes(_LEFT_OUT.format(len(said))) + 1
    first, gone = _chosen(said, room)
    shown = [*said[:first], *said[first + gone :]]
    cap = level_sizes([count_bytes(text) for _, text in shown], room - sum(map(_around, shown)))
    if least > LEAST and (gone or cap < least):
        return None
    out = [format_quote(n, clip_text(text, cap)) for n, text in shown]
    if gone:
        out.insert(first, _LEFT_OUT.format(gone))
    return out


def _chosen(said: Numbered, room: int) -> tuple[int, int]:
    """The numbers of texts shown at the beginning, one or none, and left out after it."""
    costs = [_around(one) + min(count_bytes(one[1]), LEAST) for one in said]
    first = int(bool(costs) and costs[0] <= room)
    left, newest = room - sum(costs[:first]), 0
    for cost in reversed(costs[first:]):
        if cost > left:
            break
        left, newest = left - cost, newest + 1
    return first, len(said) - first - newest


def _around(one: tuple[int, str]) -> int:
    """Bytes of a quotation besides what is quoted; with a note, where that may have to be cut."""
    n, text = one
    return _TAGS + len(str(n)) + (_NOTE if count_bytes(text) > LEAST else 0)


_TAGS: Final = count_bytes(format_quote(0, ""))
"""Of a number with one digit: the digit makes room for the end of the line."""


def level_sizes(sizes: Sequence[int], room: int) -> int:
    """The size to which all that are larger must be cut so that together they take this room."""
    left, ordered = room, sorted(sizes)
    for n, size in enumerate(ordered):
        share = left // (len(ordered) - n)
        if size > share:
            return max(0, share)
        left -= size
    return max(sizes, default=0)


def count_line_bytes(lines: Iterable[str]) -> int:
    """Bytes that these take, one a line."""
    return sum(count_bytes(text) + 1 for text in lines)


# --- the message around it ------------------------------------------------------------------------------


def format_transcript_hint(path: Path | str | None) -> str:
    """Tells the model where all of the conversation is, and how to look for what it misses."""
    return _WHERE.format(path=path) if path else _SOMEWHERE


def enclose_in_tag(tag: str, lines: Iterable[str]) -> str:
    """Between tags, which nothing inside can end before its time."""
    text = "\n".join(lines).replace(f"</{tag}>", f"<\\/{tag}>")
    return strip_half_characters(f"<{tag}>\n{text}\n</{tag}>")


# --- as a record --------------------------------------------------------------------------------------


def format_record(placed: Sequence[PlacedMessage], most: int = 0) -> str:
    """A stretch of conversation as plain text, for a request that has nothing else: images as markers.

    `most`: characters of what a tool was given or answered; 0: all of them.
    """
    lines = ["<record>"]
    for one in placed:
        role = one.message.role if one.by != "tools" else "tools"
        blocks = [text for block in one.message.content if (text := _format_block(block, most))]
        lines += [f"<{role}>", *blocks, f"</{role}>"]
    return "\n".join([*lines, "</record>"])


def _format_block(block: Block, most: int = 0) -> str:
    match block:
        case Text(text):
            return text
        case ToolUse():
            text = msgspec.json.encode(block.input).decode("utf-8")
            return f"[calls {block.name}: {clip_text(text, most) if most else text}]"
        case ToolResult(_, content, failed):
            text = content if isinstance(content, str) else "\n".join(map(_format_block, content))
            return f"[{'error' if failed else 'result'}: {clip_text(text, most) if most else text}]"
        case Image():
            return "[image]"
        case Document():
            return "[document]"
        case Opaque(kind):
            return f"[{kind}]"
    return ""
