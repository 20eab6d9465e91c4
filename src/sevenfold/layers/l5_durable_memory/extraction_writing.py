"""Turns the Write and Edit calls of an extraction into memories, or says why it does not.

Every write is one memory in one file: checked for what it rests on, compared with the memories that are
there, looked through by the guard, and put in place under the lock of the folder, with a revision and a
line in the index. Nothing the model writes goes to disk unchecked.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.errors import Mistake, Refused, StorageFailure
from sevenfold.layers.l5_durable_memory.founding import Founded, Unfit, founded
from sevenfold.layers.l5_durable_memory.provenance import Sources
from sevenfold.memory.dates import relative_dates
from sevenfold.memory.folder.desk import Saved
from sevenfold.memory.folder.files import HEAD, MemoryFiles, Opened
from sevenfold.memory.folder.listing import is_topic
from sevenfold.memory.folder.naming import ENDING, INDEX_NAME, key
from sevenfold.memory.folder.reaching import Overtaken, Stamp
from sevenfold.memory.index import HOOK
from sevenfold.memory.index_rows import Row, rows_of
from sevenfold.memory.merging import resembling, statement, words
from sevenfold.memory.parts import is_personal, part_of
from sevenfold.memory.refusing import Guarded
from sevenfold.memory.revisions import Author
from sevenfold.memory.store import MemoryStore
from sevenfold.memory.topic import Topic, changed, read_topic
from sevenfold.memory.topics.reading import shortened
from sevenfold.messages import Json
from sevenfold.protocols import ToolFailed
from sevenfold.tools.edit_hints import why_not_found
from sevenfold.tools.editing import occurrences, replaced
from sevenfold.tools.paths import lexical

KIND: Final = "extraction"
_TRIES: Final = 5
_LONGEST_ROW: Final = HOOK + 50
"""Characters of a line of the index that is taken from a model."""


class MemoryWriter:
    """Of one run. `write` and `edit` are called in a thread, one after the other."""

    def __init__(
        self, store: MemoryStore, sources: Sources, session: str, locate: Callable[[str], Path]
    ) -> None:
        self._store, self._sources, self._session = store, sources, session
        self._locate = locate
        self._files = MemoryFiles(store.folder)
        self._read: set[str] = set()
        self.saved: dict[str, Saved] = {}
        """What this run has saved, by file."""

    def file_of(self, asked: str) -> str:
        """The memory file that a path means; `Unfit` when it is none."""
        try:
            file = self._files.file_of(lexical(self._locate(asked)))
        except (Refused, ToolFailed):
            raise Unfit(
                "outside", f"{asked} is not in the memory folder, {self._store.folder}"
            ) from None
        if not file.endswith(ENDING):
            raise Unfit("outside", f"{asked} is no memory: only {ENDING} files are")
        if not is_topic(file) and file != INDEX_NAME:
            raise Unfit("outside", f"{asked} is a daily log or an index of others: write a memory")
        return file

    def was_read(self, asked: str) -> None:
        """A file was shown to the model: it knows what it overwrites."""
        try:
            self._read.add(self.file_of(asked))
        except Unfit:
            return

    def write(self, args: Json) -> str:
        """A whole file; what there is to say about it."""
        file, text = self.file_of(args["file_path"]), str(args["content"])

        def asked(old: bytes | None) -> str:
            if old is not None and file not in self._read | self.saved.keys() | {INDEX_NAME}:
                raise Unfit("unread", f"{file} is there already: Read it first, then Edit it")
            return text

        return self._put(file, asked)

    def edit(self, args: Json) -> str:
        """A piece of a file by another."""
        file = self.file_of(args["file_path"])
        old, new = (str(args[name]).replace("\r\n", "\n") for name in ("old_string", "new_string"))

        def asked(data: bytes | None) -> str:
            if data is None:
                raise Unfit("form", f"there is no {file}: use Write for a new memory")
            text = data.decode("utf-8", "surrogateescape")
            spans = occurrences(text, old) if old else []
            if not spans:
                raise Unfit("form", f"{file} has no old_string{why_not_found(text, old, new)}")
            if len(spans) > 1 and not args.get("replace_all", False):
                raise Unfit("form", f"old_string occurs {len(spans)} times in {file}: add lines")
            return replaced(text, spans, new)

        return self._put(file, asked)

    # --- one write --------------------------------------------------------------------------------------

    def _put(self, file: str, asked: Callable[[bytes | None], str]) -> str:
        self._store.take_in()  # what others wrote is theirs
        for _ in range(_TRIES):
            try:
                with self._files.opened(make=True) as at, at.alone():
                    old, stamp = _read(at, file)
                    text = asked(old)
                    if file == INDEX_NAME:
                        done = self._index(at, text, old or b"", stamp)
                    else:
                        done = self._memory(at, file, text, old, stamp)
            except Overtaken:
                continue
            except Guarded as held:
                raise Unfit(_kinds(held), str(held)) from held
            except Mistake as refused:
                raise Unfit("form", str(refused)) from refused
            return self._recorded(done)
        raise StorageFailure(f"{self._store.folder / file} could not be written: it keeps changing")

    def _memory(
        self, at: Opened, file: str, text: str, old: bytes | None, stamp: Stamp | None
    ) -> _Done:
        before = None if old is None else read_topic(old, file)
        proposed = read_topic(text.encode("utf-8", "surrogateescape"), file)
        if is_personal(proposed):
            raise Unfit("outside", "what is known about a person is never shared with the team")
        made = founded(proposed, before, self._sources, self._session)
        merged = False
        if before is None:
            if (known := self._known(made)) is not None:
                merged = True
                old, stamp = _read(at, known.file)
                before = read_topic(old or b"", known.file)
                made = _in_place_of(before, made)
        elif words(statement(before)) == words(statement(made.topic)):
            raise Unfit("known", f"{file} says so already: nothing was changed")
        file, data = made.topic.file, made.topic.data
        author = Author(KIND, self._session, f"they said: {shortened(made.quote, 200)}")
        self._store.before_write(self._store.folder / file, data, author=author)
        at.write(file, data, stamp)
        said = f"Merged into {file}, which is about the same." if merged else f"Saved {file}."
        if left := relative_dates(f"{made.topic.description}\n{made.topic.body}"):
            said += f" These dates will mean nothing later: {', '.join(left)}. Edit them."
        return _Done(file, author, said, merged)

    def _known(self, made: Founded) -> Topic | None:
        """The memory whose place a new one takes; `Unfit` when it is there, or may be."""
        new = made.topic
        part, topics = part_of(new.file), self._store.topics()
        beside = resembling(new, [one for one in topics if not part.holds(one.file)])
        if beside is not None and beside.known:
            raise Unfit("known", f"{beside.topic.file} says so already: nothing to save")
        like = resembling(new, [one for one in topics if part.holds(one.file)])
        if like is None:
            return None
        old = like.topic
        if like.known:
            raise Unfit("known", f"{old.file} says so already: nothing to save")
        if not like.same and not {key(link) for link in new.links} & {key(old.name), key(old.file)}:
            raise Unfit(
                "known",
                f"{old.file} ({shortened(old.description, 120)}) is close to this. If it is the same "
                f"fact, Read that file and Edit it; if not, say so with a link, [[{old.name}]]",
            )
        return old if like.same else None

    def _recorded(self, done: _Done) -> str:
        """The revision, and the line in the index."""
        path = self._store.folder / done.file
        for one in self._store.after_write(path, author=done.author):
            if one.path == path:
                action = "merged" if done.merged else one.action
                self.saved[done.file] = Saved(one.name, path, one.revision, action)
        return done.said

    # --- the index --------------------------------------------------------------------------------------

    def _index(self, at: Opened, text: str, old: bytes, stamp: Stamp | None) -> _Done:
        """Of a new index the lines count that belong to memories of this run; it keeps the others."""
        before = old.decode("utf-8", "surrogateescape")
        offered = {
            key(row.links[0].file): row for row in rows_of(text) if _is_plain(row, self.saved)
        }
        new = "".join(
            offered[file].text.rstrip("\r\n") + "\n"
            if row.pointing and row.links and (file := key(row.links[0].file)) in offered
            else row.text
            for row in rows_of(before)
        )
        taken = {row.text.strip() for row in rows_of(new)}
        left = [row for row in rows_of(text) if row.text.strip() not in taken | {""}]
        author = Author(KIND, self._session)
        if new == before and left:
            raise Unfit(
                "index",
                f"{INDEX_NAME} has a line for each memory and keeps itself, from their names and "
                "descriptions; to save something, write a memory in a file of its own",
            )
        if new != before:
            data = new.encode("utf-8", "surrogateescape")
            self._store.before_write(self._store.folder / INDEX_NAME, data, author=author)
            at.write(INDEX_NAME, data, stamp)
        more = " Other lines were left as they are." if left else ""
        return _Done(INDEX_NAME, author, f"The index is up to date.{more}")


class _Done(msgspec.Struct, frozen=True):
    """A file that is in place and not recorded yet, and what to say about it."""

    file: str
    author: Author
    said: str
    merged: bool = False


def _read(at: Opened, file: str) -> tuple[bytes | None, Stamp | None]:
    if at.stamp(file) is None:
        return None, None
    return at.read(file, HEAD + 1)


def _in_place_of(old: Topic, made: Founded) -> Founded:
    """The old file with what the new memory says; its name and all else in it stay."""
    new = made.topic
    data = changed(
        old, description=new.description, body=new.body, type=new.type, origin=made.origin
    )
    return Founded(read_topic(data, old.file), made.origin, made.quote)


def _is_plain(row: Row, saved: dict[str, Saved]) -> bool:
    files = {key(file) for file in saved}
    one = row.pointing and len(row.links) == 1 and row.count == 1
    return one and key(row.links[0].file) in files and len(row.text.strip()) <= _LONGEST_ROW


def _kinds(held: Guarded) -> str:
    if held.quarantined is not None:
        return "instructions"
    return "secret" if any(one.kind == "secret" for one in held.findings) else "form"
