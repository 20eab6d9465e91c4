"""Chooses memories for a question: by search, by a model, or by a model from what a search found.

    hybrid          the search alone: plain code, milliseconds
    model           a model chooses from the newest 200
    hybrid+model    a model chooses from the best 20 of the search

A model chooses by the descriptions, in one small question beside the conversation. If it fails, the search
decides, and an event says so. `make_attachment` makes a message of the chosen memories: delimited as data,
with name, type, age and path, and cut to size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from sevenfold.core.clock import format_date
from sevenfold.core.errors import SevenfoldError
from sevenfold.core.events import Emit, Failed, Notice, Repaired, SideWorkChosen
from sevenfold.core.messages import Json, Message, ToolUse, strip_half_characters, user, write_directive
from sevenfold.core.protocols import Forker
from sevenfold.core.request import Frame, Request
from sevenfold.core.tokens import count_bytes
from sevenfold.core.transcript import Mark, View
from sevenfold.memory.recall_results import BY, TAG, Recalled, format_age, format_caveat, is_recalled
from sevenfold.settings.layers import RecallSettings, SelectorName

if TYPE_CHECKING:
    from sevenfold.layers.parts import FindMemories, RecallParts

CANDIDATES: Final = 20  # Memories that the search puts before a model
NEWEST: Final = 200  # Memories that a model chooses from where there is no search before it
FAILURES: Final = 3  # After so many failures in a row the model is not asked any more


class RecallQuery(msgspec.Struct, frozen=True):
    """A question for memories."""

    text: str
    limit: int
    skip: frozenset[str]  # Files that are in view already


class Selection(msgspec.Struct, frozen=True):
    """The chosen memories, best first, the selector, and the milliseconds it took."""

    memories: tuple[Recalled, ...]
    selector: SelectorName
    milliseconds: float


class MemoryChooser(Protocol):
    """Lets a model choose; `NotChosen` when there is no answer."""

    async def __call__(
        self, wanted: RecallQuery, candidates: Sequence[Recalled], *, standing: bool
    ) -> tuple[Recalled, ...]:
        """`standing`: the candidates are the same for every question, until a memory is saved."""
        ...


class NotChosen(Exception):
    """The model has chosen nothing that counts; the message says why, for people."""


def select_by_search(find: FindMemories, wanted: RecallQuery, limit: int = 0) -> Selection:
    """The search alone."""
    began = perf_counter()
    found = find(wanted.text, limit or wanted.limit, wanted.skip)
    memories = tuple(m for m in found if m.file not in wanted.skip)
    return Selection(memories, "hybrid", 1_000 * (perf_counter() - began))


@dataclass(slots=True)
class ByModel:
    """A model chooses, from everything or from what a search found."""

    sources: RecallParts
    choose: MemoryChooser
    selector: SelectorName
    emit: Emit
    _failed: int = field(default=0, init=False)

    @property
    def gave_up(self) -> bool:
        return self._failed >= FAILURES

    async def __call__(self, wanted: RecallQuery) -> Selection:
        from anyio.to_thread import run_sync

        began = perf_counter()
        alone = self.selector == "model"

        def gather() -> Sequence[Recalled]:
            if alone:
                return self.sources.newest(NEWEST)
            return select_by_search(self.sources.find, wanted, CANDIDATES).memories

        candidates = await run_sync(gather, abandon_on_cancel=True)
        if all(one.file in wanted.skip for one in candidates):
            return Selection((), self.selector, 1_000 * (perf_counter() - began))
        try:
            chosen = await self.choose(wanted, candidates, standing=alone)
        except (NotChosen, SevenfoldError) as error:
            return await self._instead(wanted, candidates, str(error))
        self._failed = 0
        return Selection(chosen, self.selector, 1_000 * (perf_counter() - began))

    async def _instead(self, wanted: RecallQuery, candidates: Sequence[Recalled], why: str) -> Selection:
        """The search's choice, where the model made none."""
        from anyio.to_thread import run_sync

        self._failed += 1
        self.emit(Failed(BY, f"the model did not choose, and the search does: {why}"))
        if self.gave_up:
            said = f"memories are chosen by search alone from now on: the model failed {FAILURES} times"
            self.emit(Notice(said, "warning"))
        if self.selector == "hybrid+model":
            return Selection(tuple(candidates[: wanted.limit]), "hybrid", 0.0)
        search = partial(select_by_search, self.sources.find, wanted)
        return await run_sync(search, abandon_on_cancel=True)


KIND: Final = "recall-plain"  # A column of its own in the ledger: it shares no prefix with the conversation
TOOL: Final = "choose_memories"
ANSWER: Final = 256  # Tokens of the answer
HEAD: Final = 30  # Lines of a memory that are looked at where it has no description
DESCRIPTION: Final = 300
SHOWN: Final = 50  # Files in view already that are named to the model


class ModelSelector:
    """Asks, and takes of the answer what is in the manifest."""

    def __init__(self, fork: Forker, sources: RecallParts, settings: RecallSettings, emit: Emit) -> None:
        self._fork, self._sources, self._settings, self._emit = fork, sources, settings, emit

    async def __call__(
        self, wanted: RecallQuery, candidates: Sequence[Recalled], *, standing: bool
    ) -> tuple[Recalled, ...]:
        from anyio import fail_after

        listed, model = format_manifest(candidates), self._sources.model()
        system = (read_wording("select.md"), *((listed,) if standing else ()))
        request = Request(Frame(model, system, (_tool(wanted.limit),), _FORCED), View())
        self._emit(SideWorkChosen(KIND, "lean", model, self._sources.why()))
        body = _asking(wanted, "" if standing else listed)
        directive = user(write_directive(KIND, "r-1", body))
        seconds = self._settings.timeout_seconds
        try:
            with fail_after(seconds):
                said = await self._fork(request, directive, kind=KIND, max_tokens=ANSWER)
        except TimeoutError:
            raise NotChosen(f"no answer within {seconds:g} s") from None
        by_file = {one.file: one for one in candidates}
        named = dict.fromkeys(parse_choice(said.reply.message))
        names = [name for name in named if name in by_file]
        if len(names) < len(named) or not said.reply.message.tool_uses:
            self._emit(Repaired(BY, f"chosen in words, or {len(named) - len(names)} names are no memories"))
        return tuple(by_file[name] for name in names)


def format_manifest(memories: Sequence[Recalled]) -> str:
    """One line each: `- [type] file (day): description`. Nothing in it can end it."""
    lines = [f"- [{one.type or 'untyped'}] {one.file} ({_day(one)}): {_described(one)}" for one in memories]
    inside = "\n".join(lines).replace("</manifest", "&lt;/manifest")
    return strip_half_characters(f"<manifest>\n{inside}\n</manifest>")


def _day(memory: Recalled) -> str:
    try:
        return format_date(memory.modified)
    except (OverflowError, OSError, ValueError):  # a year that no calendar knows
        return "no date"


def _described(memory: Recalled) -> str:
    text = memory.description or " ".join(memory.text[: 10 * DESCRIPTION].split("\n")[:HEAD])
    flat = " ".join(text.split())
    return flat if len(flat) <= DESCRIPTION else f"{flat[: DESCRIPTION - 1]}…"


def parse_choice(reply: Message) -> list[str]:
    """The files that an answer names, as a call of the tool or as JSON in words."""
    for use in reply.tool_uses:
        if use.name == TOOL:
            return _files(use.input)
    text = reply.text
    start, end = text.find("{"), text.rfind("}")
    if 0 <= start < end:
        try:
            return _files(msgspec.json.decode(text[start : end + 1].encode("utf-8", "replace")))
        except msgspec.DecodeError:
            pass
    raise NotChosen("the model's answer is not a list of files")


def _files(given: Any) -> list[str]:
    files = given.get("files") if isinstance(given, dict) else None
    if not isinstance(files, list):
        raise NotChosen("the model's answer is not a list of files")
    return [file for file in files if isinstance(file, str)]


def _asking(wanted: RecallQuery, listed: str) -> str:
    said = wanted.text.replace("</said", "&lt;/said")
    parts = [listed, f"What the user has just said:\n<said>\n{said}\n</said>"]
    if wanted.skip:
        names = ", ".join(sorted(wanted.skip)[:SHOWN])
        parts.append(f"In view already, so leave them out: {names}")
    parts.append(f"Choose at most {wanted.limit} with {TOOL}, or none.")
    return "\n\n".join(filter(None, parts))


def _tool(limit: int) -> Json:
    files = {
        "type": "array",
        "items": {"type": "string"},
        "maxItems": limit,
        "description": "File names exactly as in the manifest, the most useful first.",
    }
    return {
        "name": TOOL,
        "description": "Names the memories that will help with what the user has just said.",
        "input_schema": {"type": "object", "properties": {"files": files}, "required": ["files"]},
    }


_FORCED: Final[Json] = {"tool_choice": {"type": "tool", "name": TOOL}}


_check: type[MemoryChooser] = ModelSelector


MARK: Final = "recalled:"  # The first part of the names of our marks; the number of the message follows
NAME: Final = 200
PATH: Final = 4_096  # Characters of a name and of a path that are shown
LEAST: Final = 512  # Bytes below which showing a memory is not worth it
_NUMBER: Final = rf'<{TAG} n="([0-9]{{1,9}})">'
_TAGS: Final = rf"(?i)<(?=\s*/?\s*(?:{TAG}|memory|context|system-reminder|directive)\b)"
_CONTROL: Final = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]"
"""Characters that are not seen, or that turn the text around."""
_CLOSING: Final = "</memory>"
_END: Final = f"</{TAG}>"


class Limits(msgspec.Struct, frozen=True):
    """Limits for the memories in a message: their number, and the bytes of each and of all."""

    count: int
    lines: int
    each: int  # Bytes of one, with its tags
    left: int  # Bytes of all, with everything around them


class ShownMemories(msgspec.Struct, frozen=True):
    """The recalled memories that a view shows now, and the number of the next message."""

    files: frozenset[str]
    bytes: int
    next: int


class RecallAttachment(msgspec.Struct, frozen=True):
    """The message, and the mark that goes before it in the same write."""

    message: Message
    mark: Mark
    shown: tuple[Recalled, ...]
    bytes: int


# --- what is there already ------------------------------------------------------------------------------


def find_shown_memories(view: View) -> ShownMemories:
    """By the messages that are in the view still: what has left it may be recalled again."""
    files: set[str] = set()
    size = 0
    for placed in view:
        if is_recalled(placed):
            text = placed.message.text
            size += count_bytes(text)
            if found := re.match(_NUMBER, text):
                files.update(_marked_files(view.marks.get(f"{MARK}{found[1]}")))
    numbers = [_number(name) for name in view.marks if name.startswith(MARK)]
    return ShownMemories(frozenset(files), size, 1 + max(numbers, default=0))


def _marked_files(value: object) -> Iterable[str]:
    files = value.get("files") if isinstance(value, dict) else None
    return [file for file in files if isinstance(file, str)] if isinstance(files, list) else ()


def _number(name: str) -> int:
    digits = name.removeprefix(MARK)
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0


def find_read_memories(view: View, folder: Path) -> frozenset[str]:
    """The memories that the model has itself read or written in this view, by their files."""
    from sevenfold.layers.shared.restore import find_touched_files

    name = folder.name
    there = [p for p in view if any(_may_be_below(name, use) for use in p.message.tool_uses)]
    if not there:
        return frozenset()
    results = (view.result_at(use.id) for p in there for use in p.message.tool_uses)
    there += [view[at] for at in results if at is not None]
    return frozenset(file for path in find_touched_files(there) if (file := _below(folder, path)))


def _may_be_below(name: str, use: ToolUse) -> bool:
    """Cheap: a view has thousands of calls, and few are about memory."""
    return any(isinstance(value, str) and name in value[:PATH] for value in use.input.values())


def _below(folder: Path, path: str) -> str:
    if path.startswith("~"):
        try:
            path = str(Path(path).expanduser())
        except RuntimeError:  # of a user that there is not
            return ""
    whole = Path(path)
    return whole.relative_to(folder).as_posix() if whole.is_relative_to(folder) else ""


# --- the message ----------------------------------------------------------------------------------------


def make_attachment(
    memories: Sequence[Recalled], number: int, now: float, limits: Limits
) -> RecallAttachment | None:
    """The message for as many of these as there is room for, in their order; None when there is none."""
    about = read_wording("recalled.md")
    head = f'<{TAG} n="{number}">\n{about}'
    parts, shown = [head], list[Recalled]()
    left = limits.left - count_bytes(head) - count_bytes(_END) - 1
    for memory in memories:
        if len(shown) == limits.count:
            break
        part = format_memory(memory, now, limits)
        if (size := count_bytes(part) + 1) <= left:
            parts.append(part)
            shown.append(memory)
            left -= size
    if not shown:
        return None
    message = user("\n".join([*parts, _END]))
    size = count_bytes(message.text)
    mark = Mark(f"{MARK}{number}", {"files": [one.file for one in shown], "bytes": size})
    return RecallAttachment(message, mark, tuple(shown), size)


@cache
def read_wording(name: str) -> str:
    """The text of a file in this folder."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8").strip()


def format_memory(memory: Recalled, now: float, limits: Limits) -> str:
    """One memory between its tags; one that is cut says so, and where the rest is."""
    path = _attribute(str(memory.path), PATH)
    opening = (
        f'<memory name="{_attribute(memory.name)}" type="{_attribute(memory.type or "untyped")}" '
        f'saved="{format_age(memory.modified, now)}" path="{path}">'
    )
    above = [opening, *filter(None, [format_caveat(memory.modified, now)])]
    room = limits.each - sum(count_bytes(text) + 1 for text in above) - len(_CLOSING)
    lines = limits.lines - len(above) - 1
    return "\n".join([*above, _cut(_whole(memory), max(2, lines), max(256, room), path), _CLOSING])


def _whole(memory: Recalled) -> str:
    """The body, and above it the description, unless the body says the same."""
    body, description = memory.text.strip(), " ".join(memory.description.split())[: 2 * NAME]
    if not description or description.casefold() in " ".join(body[:4_096].split()).casefold():
        return body
    return f"{description}\n\n{body}".strip()


def _cut(text: str, lines: int, room: int, path: str) -> str:
    """At most so many lines and bytes, the note about the rest included; no character is halved."""
    # Nothing in it may end this element, look like another message, or steer a terminal.
    plain = re.sub(_CONTROL, "", text[: room + 1].replace("\r\n", "\n").replace("\r", "\n"))
    whole = strip_half_characters(re.sub(_TAGS, "&lt;", plain))
    if len(text) <= room and count_bytes(whole) < room and whole.count("\n") < lines:
        return whole
    note = f"[cut here; the rest is in {path}]"
    kept = whole.encode("utf-8")[: max(0, room - count_bytes(note) - 2)].decode("utf-8", "ignore")
    kept = "\n".join(kept.split("\n")[: max(0, lines - 1)])
    return f"{kept.rstrip()}\n{note}"


def _attribute(text: str, most: int = NAME) -> str:
    flat = re.sub(_CONTROL, "", text[:most]).replace("\n", " ").replace("\t", " ")
    for character, name in (('"', "&quot;"), ("<", "&lt;"), (">", "&gt;")):
        flat = flat.replace(character, name)
    return strip_half_characters(flat)
