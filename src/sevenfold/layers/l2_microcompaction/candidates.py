"""The tool results of a view that could be cleared. Only new messages are read.

`store_cleared_results` writes a batch into one file; the markers in the view say where it is.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path, PurePath
from typing import Final, TypeAlias

import msgspec

from sevenfold.core.errors import StorageFailure
from sevenfold.core.events import Emit, Failed
from sevenfold.core.messages import Message, Text, ToolResult, ToolUse
from sevenfold.core.tokens import FLAT, FRAME, JSON_RATE, TEXT_RATE, MessageSize, measure_message
from sevenfold.core.transcript import PlacedMessage, View
from sevenfold.storage.results import ResultStore

CLEARED: Final = "(cleared: "  # The first words of the marker that stands in place of a cleared result
STORED: Final = "<persisted-output"  # Layer 1 has kept this one short already
READERS: Final = frozenset({"Read", "NotebookRead"})
WRITERS: Final = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})
RETRIEVERS: Final = READERS | {"Grep", "Glob", "WebFetch", "WebSearch"}
OFTEN: Final = 2  # A result that was cleared and asked for again so often stays from then on
PATH_KEYS: Final = ("file_path", "path", "notebook_path")
MEMORY: Final = (
    r"(?:^|[\\/\s\"'])\.[\w-][^\s\"']{0,300}[\\/]"
    r"(?:projects[\\/][^\\/\s]+[\\/]memory|agent-memory(?:-local)?)\b(?![-.\w])"
)
"""Where we and Claude Code keep memories, below a hidden folder: also in a loop that names no folder."""
MOST_DIGITS: Final = 12
"""A longer number is none of ours: a result may begin like a marker and go on as it likes."""


class Candidate(msgspec.Struct, frozen=True):
    """A tool result in the view that may be cleared."""

    use: ToolUse
    at: int  # The place of its message in the view
    size: MessageSize
    tokens: int  # By the raw rule
    call: int  # Tool calls before this result came
    request: int  # Replies before it
    turn: int  # Turns of the user before it
    path: str
    error: bool


class FileTouch(msgspec.Struct):
    """The last read and the last change of a file, counted in calls and in replies."""

    read: int = -1
    changed: int = -1
    request: int = 0


class ClearedResult(msgspec.Struct, frozen=True):
    """A result that was cleared."""

    tokens: int
    call: int


class ClearedPointer(msgspec.Struct, frozen=True):
    """The place of a cleared result, as its marker says it."""

    file: str  # Its name without its folder: some markers of older sessions have no more
    first: int
    last: int


class RepeatedCall(msgspec.Struct, frozen=True):
    """A call that asks again for what had been cleared."""

    use: ToolUse
    tokens: int  # Tokens cleared then


class ViewScan:
    """The state of a scan that follows a view: it grows, and its results are cleared."""

    def __init__(self, tools: Iterable[str], memory: Iterable[Path]) -> None:
        folders = (path for m in memory for path in (os.path.normpath(m), os.path.realpath(m)))
        self._tools, self._memory = frozenset(tools), {PurePath(path).parts for path in folders}
        self._buffer: object = None
        self._newest = -1
        """The last message ever seen: a call before it was not made because of what is gone."""
        self.asked_again: Counter[tuple[str, str]] = Counter()
        self._begin()

    def _begin(self) -> None:
        self.calls = self.requests = self.turns = 0
        self._items: list[PlacedMessage] = []
        self._upto: list[int] = [0]  # Tokens before each message, by the raw rule, and of all
        self._uses: dict[str, tuple[ToolUse, int, str]] = {}  # With the number of the call and its path
        self._answered: set[str] = set()
        self._last: dict[_Asked, int] = {}  # The newest call that retrieves each thing
        self._unsorted: list[tuple[ToolUse, int]] = []  # Calls that are not in `_last` yet
        self.found: list[Candidate] = []
        self.files: dict[str, FileTouch] = {}
        self.gone: dict[int, ClearedResult] = {}  # Cleared results, by the number of the call
        self._kept: dict[str, list[tuple[ClearedPointer, int]]] = {}  # The places of those, by file
        self.clearable = 0  # Tokens of all candidates, by the raw rule

    @property
    def cleared(self) -> int:
        """The number of results of the view that are cleared."""
        return len(self.gone)

    def follow(self, view: View) -> list[RepeatedCall]:
        """Take in what is new. Returns the calls in it that ask again for what was cleared."""
        again: list[RepeatedCall] = []
        if self._newest < 0 and len(view):  # what happened before we looked was reported then
            self._newest = view[-1].id
        if view.buffer is not self._buffer or len(view) < len(self._items):
            if not self._took_changes(view):
                self._begin()
            self._buffer = view.buffer
        known = len(self._items)
        self._items += view.buffer.items[known : len(view)]
        for at in range(known, len(view)):
            self._take(at, self._items[at], again)
        self._newest = max(self._newest, view[-1].id) if len(view) else self._newest
        return again

    def old(self, keep: int, since: int = -1) -> list[Candidate]:
        """Those after message `since`, all but the newest so many, and none that the model has not had a
        chance to read yet.
        """
        end = max(0, len(self.found) - keep)
        while end and self.found[end - 1].request == self.requests:
            end -= 1
        return self.found[bisect_right(self.found, since, 0, end, key=lambda one: one.at) : end]

    def behind(self, at: int, end: int | None = None) -> int:
        """Tokens of this message and all after it, up to `end`, by the raw rule."""
        return self._upto[len(self._items) if end is None else end] - self._upto[at]

    def _took_changes(self, view: View) -> bool:
        """True if the view differs only in results that were cleared, and in thinking that is gone."""
        if len(view) < len(self._items):
            return False
        pairs = enumerate(zip(self._items, view, strict=False))
        changed = [(at, old, new) for at, (old, new) in pairs if old is not new]
        hidden: dict[str, ToolResult] = {}
        for _, old, new in changed:
            newly = _find_newly_hidden(old, new)
            if newly is None:
                return False  # shown again, or shown otherwise
            hidden.update(newly)
        self._drop(lambda one: one.use.id in hidden)
        for result in hidden.values():
            self._went(result)
        for at, _, new in changed:
            self._items[at] = new
        if changed:
            first = changed[0][0]
            weights = (_weight(placed.size) for placed in self._items[first:])
            self._upto[first:] = accumulate(weights, initial=self._upto[first])
        return True

    def _drop(self, which: Callable[[Candidate], bool]) -> None:
        self.clearable -= sum(one.tokens for one in self.found if which(one))
        self.found = [one for one in self.found if not which(one)]

    def _went(self, result: ToolResult) -> None:
        """This one is cleared: what there was, and where it is now."""
        if result.tool_use_id in self._uses:
            call = self._uses[result.tool_use_id][1]
            self.gone[call] = ClearedResult(parse_cleared_tokens(result.text), call)
            if kept := parse_marker(result.text):
                if kept.file not in self._kept:
                    self._drop(lambda one: name_of_read_file(one.use) == kept.file)
                self._kept.setdefault(kept.file, []).append((kept, call))

    def _take(self, at: int, placed: PlacedMessage, again: list[RepeatedCall]) -> None:
        self._upto.append(self._upto[-1] + _weight(placed.size))
        message = placed.message
        if message.role == "assistant":
            self.requests += 1
            new = placed.id > self._newest and placed.by == "model"  # no layer has restored it
            for block in message.content:
                if isinstance(block, ToolUse):
                    self._take_call(block, new, again)
            return
        if placed.by == "user" and any(isinstance(block, Text) for block in message.content):
            self.turns += 1
        for block in message.content:
            if isinstance(block, ToolResult):
                alone = len(message.content) == 1
                size = placed.size if alone else measure_message(Message("user", (block,)))
                self._answer(at, block, size)

    def _take_call(self, use: ToolUse, new: bool, again: list[RepeatedCall]) -> None:
        self.calls += 1
        if new and self.gone and (tokens := self._was_cleared(use)) is not None:
            self._asks_again(use)
            again.append(RepeatedCall(use, tokens))
        path = find_call_path(use)
        self._uses[use.id] = use, self.calls, path
        if use.name in RETRIEVERS:
            self._unsorted.append((use, self.calls))
        if path:
            self._touch(use, path)

    def _answer(self, at: int, result: ToolResult, size: MessageSize) -> None:
        id = result.tool_use_id
        if id not in self._uses:
            return
        if id in self._answered:  # some models use an id again: an edit means the last one
            self._drop(lambda one: one.use.id == id)
        self._answered.add(id)
        use, call, path = self._uses[id]
        if _hidden(result):
            self._went(result)
        elif self._may_go(use, result):
            tokens = _weight(size)
            one = Candidate(use, at, size, tokens, call, self.requests, self.turns, path, result.is_error)
            self.found.append(one)
            self.clearable += tokens

    def _asks_again(self, use: ToolUse) -> None:
        what = describe_subject(use)
        self.asked_again[what] += 1
        if self.asked_again[what] >= OFTEN:
            self._drop(lambda one: describe_subject(one.use) == what)

    def _was_cleared(self, use: ToolUse) -> int | None:
        """Tokens of a cleared result that is asked for again; None if it was not cleared.

        A file that was changed meanwhile is read anew, not again; commands repeat by nature.
        """
        if use.name not in RETRIEVERS:
            return None
        self._last.update((_asked(earlier), call) for earlier, call in self._unsorted)
        self._unsorted.clear()
        last = self._last.get(_asked(use))
        if last is None:
            return self._kept_tokens(use)
        cleared = self.gone.get(last)
        touched = self.files.get(find_call_path(use))
        if cleared is None or (touched and touched.changed > cleared.call):
            return None
        return cleared.tokens

    def _kept_tokens(self, use: ToolUse) -> int | None:
        """The same for a reader of the file that a marker names."""
        if not (self._kept and (places := self._kept.get(name_of_read_file(use)))):
            return None
        first, count = use.input.get("offset"), use.input.get("limit")
        first = first if isinstance(first, int) else 1
        last = first + count - 1 if isinstance(count, int) else None
        calls = {c for k, c in places if k.last >= first and (last is None or k.first <= last)}
        return sum(self.gone[call].tokens for call in calls) if calls else None

    def _touch(self, use: ToolUse, path: str) -> None:
        if use.name in READERS or use.name in WRITERS:
            touched = self.files.setdefault(path, FileTouch())
            touched.request = self.requests
            if use.name in READERS:
                touched.read = self.calls
            else:
                touched.changed = self.calls

    def _may_go(self, use: ToolUse, result: ToolResult) -> bool:
        if use.name not in self._tools or not _is_text(result) or result.text.startswith(STORED):
            return False
        if self.asked_again and self.asked_again.get(describe_subject(use), 0) >= OFTEN:
            return False  # clearing it would go on for ever
        if self._kept and name_of_read_file(use) in self._kept:  # and so would this
            return False
        return not _is_about_memory(use, self._memory)


def name_of_read_file(use: ToolUse) -> str:
    """The name of the file that a call reads, without its folder."""
    return _name_file(find_call_path(use)) if use.name in READERS else ""


@lru_cache(maxsize=1_024)
def _name_file(path: str) -> str:
    return PurePath(path).name


def describe_subject(use: ToolUse) -> tuple[str, str]:
    """The subject of a call, in words; another part of the same file is another subject."""
    return use.name, str(sorted(use.input.items(), key=str))


_Asked: TypeAlias = tuple[str, frozenset[tuple[str, ...]]]


def _asked(use: ToolUse) -> _Asked:
    """The same, to compare calls by: it copies nothing, however long what a call writes is."""
    given = use.input.items()
    return use.name, frozenset((k, v) if isinstance(v, str) else (k, "", repr(v)) for k, v in given)


def parse_marker(text: str) -> ClearedPointer | None:
    """The place of the whole result, as the marker says it."""
    head, _, lines = text.removesuffix(")").rpartition(" lines ")
    _, found, path = head.rpartition(", kept in ")
    first, last = (_number(digits) for digits in lines.partition("-")[::2])
    return ClearedPointer(_name_file(path), first, last) if found and first and last else None


def parse_cleared_tokens(text: str) -> int:
    """The size of a result that was cleared, from the marker in its place."""
    digits, _, _ = text[len(CLEARED) : len(CLEARED) + 2 * MOST_DIGITS].partition(" ")
    return _number(digits.replace(",", ""))


def _number(digits: str) -> int:
    return int(digits) if digits.isdecimal() and len(digits) <= MOST_DIGITS else 0


def _hidden(result: ToolResult) -> bool:
    return isinstance(result.content, str) and result.content.startswith(CLEARED)


def _is_text(result: ToolResult) -> bool:
    """True for a result that a text file can hold whole."""
    return isinstance(result.content, str) or all(isinstance(b, Text) for b in result.content)


def _is_about_memory(use: ToolUse, folders: Iterable[tuple[str, ...]]) -> bool:
    """True if a call leads into one of the folders, or to where memories are kept: by path or word."""
    path, texts = find_call_path(use), [str(use.input.get(key, "")) for key in ("pattern", "command")]
    if _leads_into(path, folders) or re.search(MEMORY, "\n".join((path, *texts))):
        return True
    named = (text for text in texts if any(folder[-1] in text for folder in folders))
    words = (word.strip("\"'`;()|&<>") for text in named for word in text.split())
    return any(_leads_into(word, folders) for word in words)


def _leads_into(path: str, folders: Iterable[tuple[str, ...]]) -> bool:
    """True if this is in one of the folders. It is unknown where a relative path begins, or one from
    the user's home: those count as soon as they could lead there.
    """
    folders = [folder for folder in folders if folder[-1] in path]
    if not folders:
        return False
    parts = PurePath(os.path.normpath(path)).parts
    if PurePath(path).is_absolute():
        return any(parts[: len(folder)] == folder for folder in folders)
    named = tuple(part for part in parts if part not in ("..", "~"))
    return any(named[:n] == folder[-n:] for folder in folders for n in range(1, len(named) + 1))


_PAIRED: Final = (ToolUse, ToolResult)


def _find_newly_hidden(old: PlacedMessage, new: PlacedMessage) -> dict[str, ToolResult] | None:
    """The results that are cleared in the new form of a message; None if it differs in more.

    Thinking may be gone, and words may be others.
    """
    was = [block for block in old.message.content if isinstance(block, _PAIRED)]
    now = [block for block in new.message.content if isinstance(block, _PAIRED)]
    if old.id != new.id or len(was) != len(now):
        return None
    hidden: dict[str, ToolResult] = {}
    for before, after in zip(was, now, strict=True):
        if before is after or before == after:
            continue
        if not isinstance(before, ToolResult) or not isinstance(after, ToolResult):
            return None
        if before.tool_use_id != after.tool_use_id or _hidden(before) or not _hidden(after):
            return None
        hidden[after.tool_use_id] = after
    return hidden


def _weight(size: MessageSize) -> int:
    return int(size.text * TEXT_RATE + size.json * JSON_RATE) + size.flat * FLAT + size.frames * FRAME


def find_call_path(use: ToolUse) -> str:
    """The file that a call is about, as it was named."""
    for key in PATH_KEYS:
        if isinstance(path := use.input.get(key), str):
            return path
    return ""


def find_result(candidate: Candidate, view: View) -> ToolResult:
    """The result that a candidate stands for."""
    for block in view[candidate.at].message.content:
        if isinstance(block, ToolResult) and block.tool_use_id == candidate.use.id:
            return block
    raise LookupError(candidate.use.id)


LONGEST_NAME: Final = 120


def store_cleared_results(
    candidates: Sequence[Candidate], view: View, store: ResultStore, emit: Emit
) -> dict[str, str]:
    """Stores results in one file; returns the markers by tool-use id, none if the disk refuses."""
    parts: list[str] = []
    places: list[tuple[Candidate, int, int]] = []
    line = 1
    for one in candidates:
        text = find_result(one, view).text
        parts.append(" ".join(f"=== {describe_call(one.use)} ({one.use.id})".split()))
        parts.append(text)
        count = text.count("\n") + 1
        places.append((one, line + 1, count))
        line += 1 + count
    try:  # the transcript has it all too, so there is no need to wait for the disk
        path = store.keep(f"cleared-{candidates[-1].call}", "\n".join(parts), lasting=False)
    except StorageFailure as error:
        emit(Failed("microcompaction", f"nothing was cleared: {error}"))
        return {}
    weigh, whole_path = view.calibration.tokens, str(path)
    return {
        one.use.id: format_marker(weigh(one.size), whole_path, first, count) for one, first, count in places
    }


def format_marker(tokens: int, path: str, first: int, lines: int) -> str:
    """The marker in place of a result. Every word is paid for at every request."""
    return f"{CLEARED}{tokens:,} tokens, kept in {path} lines {first}-{first + lines - 1})"


def describe_call(use: ToolUse) -> str:
    """A call in a few words: the tool, and what it was about."""
    flat = ""
    for value in use.input.values():
        if isinstance(value, str) and (words := value.split()):
            flat = " ".join(words)
            break
    short = flat if len(flat) <= LONGEST_NAME else flat[: LONGEST_NAME - 1] + "…"
    return f"{use.name} {short}".rstrip()
