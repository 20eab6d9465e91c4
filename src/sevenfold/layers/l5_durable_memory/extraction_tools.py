"""The tools of an extraction: it may look around and write memories, nothing else.

The tools of the conversation stay in the request, since another list would be another prefix. Reads go to
the session's own tools, without questions; `MemoryWriter` turns Write and Edit calls into memories. Every
refusal has a reason, which the model reads, and is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import anyio.to_thread
import msgspec

from sevenfold.core.errors import Mistake, Refused, StorageFailure
from sevenfold.core.events import Emit, Remembered
from sevenfold.core.messages import Json, ToolResult, ToolUse
from sevenfold.core.protocols import ToolFailed, Tools
from sevenfold.hooks.hooks import HookedTools, Hooks
from sevenfold.layers.l5_durable_memory.provenance import (
    FoundedMemory,
    SourceMessages,
    UnfitMemory,
    check_sources,
)
from sevenfold.layers.parts import AllowCall
from sevenfold.memory.backend import HEAD, ConcurrentWrite, FileStamp, OpenMemories, is_topic
from sevenfold.memory.dates.relative import list_relative_dates
from sevenfold.memory.errors import Guarded
from sevenfold.memory.folder.folder import Saved, find_part, is_personal
from sevenfold.memory.folder.names import ENDING, INDEX_NAME, make_file_key
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.index import HOOK, IndexRow, split_rows
from sevenfold.memory.similarity import extract_statement, find_similar
from sevenfold.memory.store import MemoryStore
from sevenfold.memory.text.words import split_words
from sevenfold.memory.topic_file import Topic, change_topic, read_topic, shorten_text
from sevenfold.tools.confined_tools import COMMANDS
from sevenfold.tools.file_tools import (
    EDIT_SCHEMA,
    WRITE_SCHEMA,
    explain_not_found,
    find_occurrences,
    replace_spans,
)
from sevenfold.tools.permissions import EDITORS, READERS, Permissions
from sevenfold.tools.shell import classify_within
from sevenfold.tools.toolbox import (
    Toolbox,
    ToolGate,
    clean_arguments,
    find_argument_problem,
    make_standard_tools,
)
from sevenfold.tools.workspace import Workspace, normalise_path

KIND: Final = "extraction"
_TRIES: Final = 5
_LONGEST_ROW: Final = HOOK + 50  # Characters of a line of the index that is taken from a model


class MemoryWriter:
    """Of one run. `write` and `edit` are called in a thread, one after the other."""

    def __init__(
        self, store: MemoryStore, sources: SourceMessages, session: str, locate: Callable[[str], Path]
    ) -> None:
        self._store, self._sources, self._session = store, sources, session
        self._locate = locate
        self._read: set[str] = set()
        self.saved: dict[str, Saved] = {}  # The memories that this run has saved, by file

    def file_of(self, asked: str) -> str:
        """The memory file that a path means; `UnfitMemory` when it is none."""
        try:
            file = self._store.file_of(normalise_path(self._locate(asked)))
        except (Refused, ToolFailed):
            raise UnfitMemory(
                "outside", f"{asked} is not in the memory folder, {self._store.path_of()}"
            ) from None
        if not file.endswith(ENDING):
            raise UnfitMemory("outside", f"{asked} is no memory: only {ENDING} files are")
        if not is_topic(file) and file != INDEX_NAME:
            raise UnfitMemory("outside", f"{asked} is a daily log or an index of others: write a memory")
        return file

    def was_read(self, asked: str) -> None:
        """A file was shown to the model: it knows what it overwrites."""
        try:
            self._read.add(self.file_of(asked))
        except UnfitMemory:
            return

    def write(self, args: Json) -> str:
        """A whole file; what there is to say about it."""
        file, text = self.file_of(args["file_path"]), str(args["content"])

        def asked(old: bytes | None) -> str:
            if old is not None and file not in self._read | self.saved.keys() | {INDEX_NAME}:
                raise UnfitMemory("unread", f"{file} is there already: Read it first, then Edit it")
            return text

        return self._put(file, asked)

    def edit(self, args: Json) -> str:
        """A piece of a file by another."""
        file = self.file_of(args["file_path"])
        old, new = (str(args[name]).replace("\r\n", "\n") for name in ("old_string", "new_string"))

        def asked(data: bytes | None) -> str:
            if data is None:
                raise UnfitMemory("form", f"there is no {file}: use Write for a new memory")
            text = data.decode("utf-8", "surrogateescape")
            spans = find_occurrences(text, old) if old else []
            if not spans:
                raise UnfitMemory("form", f"{file} has no old_string{explain_not_found(text, old, new)}")
            if len(spans) > 1 and not args.get("replace_all", False):
                raise UnfitMemory("form", f"old_string occurs {len(spans)} times in {file}: add lines")
            return replace_spans(text, spans, new)

        return self._put(file, asked)

    # --- one write --------------------------------------------------------------------------------------

    def _put(self, file: str, asked: Callable[[bytes | None], str]) -> str:
        self._store.take_in()  # what others wrote is theirs
        for _ in range(_TRIES):
            try:
                with self._store.backend.opened(make=True) as at, at.alone():
                    old, stamp = _read(at, file)
                    text = asked(old)
                    if file == INDEX_NAME:
                        done = self._index(at, text, old or b"", stamp)
                    else:
                        done = self._memory(at, file, text, old, stamp)
            except ConcurrentWrite:
                continue
            except Guarded as held:
                raise UnfitMemory(_kinds(held), str(held)) from held
            except Mistake as refused:
                raise UnfitMemory("form", str(refused)) from refused
            return self._recorded(done)
        raise StorageFailure(f"{self._store.path_of(file)} could not be written: it keeps changing")

    def _memory(
        self, at: OpenMemories, file: str, text: str, old: bytes | None, stamp: FileStamp | None
    ) -> _PlacedFile:
        before = None if old is None else read_topic(old, file)
        proposed = read_topic(text.encode("utf-8", "surrogateescape"), file)
        if is_personal(proposed):
            raise UnfitMemory("outside", "what is known about a person is never shared with the team")
        made = check_sources(proposed, before, self._sources, self._session)
        if before is None and self._sources.is_instructed(extract_statement(made.topic)):
            raise UnfitMemory("known", "an instruction file of the project says so already: leave it")
        merged = False
        if before is None:
            if (known := self._known(made)) is not None:
                merged = True
                old, stamp = _read(at, known.file)
                before = read_topic(old or b"", known.file)
                made = _in_place_of(before, made)
        elif split_words(extract_statement(before)) == split_words(extract_statement(made.topic)):
            raise UnfitMemory("known", f"{file} says so already: nothing was changed")
        file, data = made.topic.file, made.topic.data
        author = Author(KIND, self._session, f"they said: {shorten_text(made.quote, 200)}")
        grounds = self._sources.collect
        checked = self._store.before_write(self._store.path_of(file), data, author=author, grounds=grounds)
        self._store.announce_write(self._store.path_of(file), checked.data, author=author)
        at.write(file, checked.data, stamp)
        said = f"Merged into {file}, which is about the same." if merged else f"Saved {file}."
        if left := list_relative_dates(f"{made.topic.description}\n{made.topic.body}"):
            said += f" These dates will mean nothing later: {', '.join(left)}. Edit them."
        said += f" {checked.said}" if checked.said else ""
        return _PlacedFile(file, author, said, merged)

    def _known(self, made: FoundedMemory) -> Topic | None:
        """The memory whose place a new one takes; `UnfitMemory` when it is there, or may be."""
        new = made.topic
        part, topics = find_part(new.file), self._store.topics()
        beside = find_similar(new, [one for one in topics if not part.holds(one.file)])
        if beside is not None and beside.known:
            raise UnfitMemory("known", f"{beside.topic.file} says so already: nothing to save")
        like = find_similar(new, [one for one in topics if part.holds(one.file)])
        if like is None:
            return None
        old = like.topic
        if like.known:
            raise UnfitMemory("known", f"{old.file} says so already: nothing to save")
        if not like.same and not {make_file_key(link) for link in new.links} & {
            make_file_key(old.name),
            make_file_key(old.file),
        }:
            raise UnfitMemory(
                "known",
                f"{old.file} ({shorten_text(old.description, 120)}) is close to this. If it is the same "
                f"fact, Read that file and Edit it; if not, say so with a link, [[{old.name}]]",
            )
        return old if like.same else None

    def _recorded(self, done: _PlacedFile) -> str:
        """The revision, and the line in the index."""
        path = self._store.path_of(done.file)
        for one in self._store.after_write(path, author=done.author):
            if one.path == path:
                action = "merged" if done.merged else one.action
                self.saved[done.file] = Saved(one.name, path, one.revision, action)
        return done.said

    # --- the index --------------------------------------------------------------------------------------

    def _index(self, at: OpenMemories, text: str, old: bytes, stamp: FileStamp | None) -> _PlacedFile:
        """Of a new index the lines count that belong to memories of this run; it keeps the others."""
        before = old.decode("utf-8", "surrogateescape")
        offered = {
            make_file_key(row.links[0].file): row for row in split_rows(text) if _is_plain(row, self.saved)
        }
        new = "".join(
            offered[file].text.rstrip("\r\n") + "\n"
            if row.pointing and row.links and (file := make_file_key(row.links[0].file)) in offered
            else row.text
            for row in split_rows(before)
        )
        taken = {row.text.strip() for row in split_rows(new)}
        left = [row for row in split_rows(text) if row.text.strip() not in taken | {""}]
        author = Author(KIND, self._session)
        if new == before and left:
            raise UnfitMemory(
                "index",
                f"{INDEX_NAME} has a line for each memory and keeps itself, from their names and "
                "descriptions; to save something, write a memory in a file of its own",
            )
        if new != before:
            data = new.encode("utf-8", "surrogateescape")
            path, grounds = self._store.path_of(INDEX_NAME), self._sources.collect
            checked = self._store.before_write(path, data, author=author, grounds=grounds)
            at.write(INDEX_NAME, checked.data, stamp)
        more = " Other lines were left as they are." if left else ""
        return _PlacedFile(INDEX_NAME, author, f"The index is up to date.{more}")


class _PlacedFile(msgspec.Struct, frozen=True):
    """A file that is in place and not recorded yet, and what to say about it."""

    file: str
    author: Author
    said: str
    merged: bool = False


def _read(at: OpenMemories, file: str) -> tuple[bytes | None, FileStamp | None]:
    if at.stamp(file) is None:
        return None, None
    return at.read(file, HEAD + 1)


def _in_place_of(old: Topic, made: FoundedMemory) -> FoundedMemory:
    """The old file with what the new memory says; its name and all else in it stay."""
    new = made.topic
    data = change_topic(old, description=new.description, body=new.body, type=new.type, origin=made.origin)
    return FoundedMemory(read_topic(data, old.file), made.origin, made.quote)


def _is_plain(row: IndexRow, saved: dict[str, Saved]) -> bool:
    files = {make_file_key(file) for file in saved}
    one = row.pointing and len(row.links) == 1 and row.count == 1
    return one and make_file_key(row.links[0].file) in files and len(row.text.strip()) <= _LONGEST_ROW


def _kinds(held: Guarded) -> str:
    if held.quarantined is not None:
        return "instructions"
    return "secret" if any(one.kind == "secret" for one in held.findings) else "form"


def make_fork_tools(
    workspace: Workspace, permissions: Permissions, hooks: Hooks | None = None
) -> tuple[Tools, AllowCall]:
    """Tools for one fork, and the gate before them. The user's hooks see what they do."""
    own = replace(workspace, seen=dict(workspace.seen))  # what is read from now on is not shared
    own.cwd = workspace.cwd
    gate = ToolGate(permissions, own)
    # Events are dropped: the fork counts what it is denied.
    toolbox = Toolbox(make_standard_tools(own), gate, lambda event: None)
    if hooks is None:
        return toolbox, gate
    return HookedTools(toolbox, hooks, take_seconds=toolbox.take_seconds), gate


_SCHEMAS: Final[dict[str, Json]] = {
    schema["name"]: schema["input_schema"] for schema in (WRITE_SCHEMA, EDIT_SCHEMA)
}


class RefusedCall(msgspec.Struct, frozen=True):
    """A call that was not carried out."""

    kind: str  # tool, command, outside, rule, source, known, unread, index, form, secret or instructions
    tool: str
    why: str


class ExtractionTools:
    """Implements `protocols.Tools` for one extraction."""

    def __init__(self, tools: Tools, writer: MemoryWriter, may: AllowCall, emit: Emit) -> None:
        self._tools, self._writer, self._may, self._emit = tools, writer, may, emit
        self.refusals: list[RefusedCall] = []
        self.mended = 0  # Calls whose arguments held halves of characters
        self.broken: StorageFailure | None = None  # The disk refused: what was to be saved is not

    @property
    def denied(self) -> int:
        return len(self.refusals)

    @property
    def kinds(self) -> Counter[str]:
        """The number of refusals of each kind."""
        return Counter(one.kind for one in self.refusals)

    def safe(self, use: ToolUse) -> bool:
        return use.name not in EDITORS and self._tools.safe(use)

    async def call(self, use: ToolUse) -> ToolResult:
        try:
            if use.name in EDITORS:
                return ToolResult(use.id, await self._write(use))
            self._check(use)
        except UnfitMemory as unfit:
            self.refusals.append(RefusedCall(unfit.kind, use.name, unfit.why))
            return ToolResult(use.id, f"not done: {unfit.why}", is_error=True)
        result = await self._tools.call(use)
        if use.name == "Read" and not result.is_error:
            self._writer.was_read(str(use.input.get("file_path", "")))
        return result

    def _check(self, use: ToolUse) -> None:
        """`UnfitMemory` unless it only looks."""
        if use.name in READERS:
            return
        if use.name != "Bash":
            raise UnfitMemory(
                "tool",
                f"{use.name} is not for this: Read, Grep and Glob are, Bash with "
                f"{', '.join(sorted(COMMANDS))}, and Write and Edit of memories",
            )
        verdict = classify_within(str(use.input.get("command", "")), COMMANDS)
        if not verdict.read_only or use.input.get("run_in_background", False):
            why = verdict.why if not verdict.read_only else "nothing may go on in the background"
            raise UnfitMemory("command", f"only {', '.join(sorted(COMMANDS))} may be run: {why}")

    async def _write(self, use: ToolUse) -> str:
        args: Json = clean_arguments(use.input)
        self.mended += args != use.input
        if wrong := find_argument_problem(_SCHEMAS[use.name], args):
            raise UnfitMemory("form", wrong)
        self._writer.file_of(args["file_path"])
        if (why := await self._may(use)) is not None:
            raise UnfitMemory("rule", why)
        work = self._writer.write if use.name == "Write" else self._writer.edit
        before = dict(self._writer.saved)
        try:  # not abandoned on cancel: half-known is worse than late
            said = await anyio.to_thread.run_sync(partial(work, args))
        except StorageFailure as error:
            self.broken = error
            raise UnfitMemory("form", str(error)) from error
        for file, one in self._writer.saved.items():
            if one != before.get(file):
                self._emit(Remembered(one.name, str(one.path), one.action, one.revision, KIND))
        return said


_check: type[Tools] = ExtractionTools
