"""Recalled memories as a message: delimited as data, with name, type, age and path, and cut to size.

    <recalled-memories n="1">
    what this is, in a few sentences
    <memory name="no-db-mocks" type="feedback" saved="12 days ago" path="…/no-db-mocks.md">
    …
    </memory>
    </recalled-memories>

Nothing that a memory says can end its element or begin another. A mark beside the message records which
files it shows; whether they are still shown is read off the view.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.memory.age import age, caveat
from sevenfold.memory.recalled import TAG, Recalled, is_recalled
from sevenfold.messages import Message, ToolUse, user, whole_characters
from sevenfold.restore import touched
from sevenfold.tokens import byte_length
from sevenfold.transcript import Mark, View

MARK: Final = "recalled:"
"""How the names of our marks begin; the number of the message follows."""
NAME: Final = 200
PATH: Final = 4_096
"""Characters of a name and of a path that are shown."""
LEAST: Final = 512
"""Bytes below which showing a memory is not worth it."""
_NUMBER: Final = re.compile(rf'<{TAG} n="([0-9]{{1,9}})">')
_TAGS: Final = re.compile(
    rf"<(?=\s*/?\s*(?:{TAG}|memory|context|system-reminder|directive)\b)", re.IGNORECASE
)
_CONTROL: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]"
)
"""What is not seen, or turns what is seen around."""
_CLOSING: Final = "</memory>"
_END: Final = f"</{TAG}>"


class Limits(msgspec.Struct, frozen=True):
    """How many memories a message shows, and how much of each and of all."""

    count: int
    lines: int
    each: int
    """Bytes of one, with its tags."""
    left: int
    """Bytes of all, with everything around them."""


class Shown(msgspec.Struct, frozen=True):
    """What a view shows of recalled memories now, and the number of the next message."""

    files: frozenset[str]
    bytes: int
    next: int


class Attachment(msgspec.Struct, frozen=True):
    """The message, and the mark that goes before it in the same write."""

    message: Message
    mark: Mark
    shown: tuple[Recalled, ...]
    bytes: int


# --- what is there already ------------------------------------------------------------------------------


def shown_in(view: View) -> Shown:
    """By the messages that are in the view still: what has left it may be recalled again."""
    files: set[str] = set()
    size = 0
    for placed in view:
        if is_recalled(placed):
            text = placed.message.text
            size += byte_length(text)
            if found := _NUMBER.match(text):
                files.update(_marked_files(view.marks.get(f"{MARK}{found[1]}")))
    numbers = [_number(name) for name in view.marks if name.startswith(MARK)]
    return Shown(frozenset(files), size, 1 + max(numbers, default=0))


def _marked_files(value: object) -> Iterable[str]:
    files = value.get("files") if isinstance(value, dict) else None
    return [file for file in files if isinstance(file, str)] if isinstance(files, list) else ()


def _number(name: str) -> int:
    digits = name.removeprefix(MARK)
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0


def read_in(view: View, folder: Path) -> frozenset[str]:
    """The memories that the model has itself read or written in this view, by their files."""
    name = folder.name
    there = [p for p in view if any(_may_be_below(name, use) for use in p.message.tool_uses)]
    if not there:
        return frozenset()
    results = (view.result_at(use.id) for p in there for use in p.message.tool_uses)
    there += [view[at] for at in results if at is not None]
    return frozenset(file for path in touched(there) if (file := _below(folder, path)))


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


def attachment(
    memories: Sequence[Recalled], number: int, now: float, limits: Limits
) -> Attachment | None:
    """The message for as many of these as there is room for, in their order; None when there is none."""
    head = f'<{TAG} n="{number}">\n{_about()}'
    parts, shown = [head], list[Recalled]()
    left = limits.left - byte_length(head) - byte_length(_END) - 1
    for memory in memories:
        if len(shown) == limits.count:
            break
        part = element(memory, now, limits)
        if (size := byte_length(part) + 1) <= left:
            parts.append(part)
            shown.append(memory)
            left -= size
    if not shown:
        return None
    message = user("\n".join([*parts, _END]))
    size = byte_length(message.text)
    mark = Mark(f"{MARK}{number}", {"files": [one.file for one in shown], "bytes": size})
    return Attachment(message, mark, tuple(shown), size)


@cache
def _about() -> str:
    return Path(__file__).with_name("recalled.md").read_text(encoding="utf-8").strip()


def element(memory: Recalled, now: float, limits: Limits) -> str:
    """One memory between its tags; one that is cut says so, and where the rest is."""
    path = _attribute(str(memory.path), PATH)
    opening = (
        f'<memory name="{_attribute(memory.name)}" type="{_attribute(memory.type or "untyped")}" '
        f'saved="{age(memory.modified, now)}" path="{path}">'
    )
    above = [opening, *filter(None, [caveat(memory.modified, now)])]
    room = limits.each - sum(byte_length(text) + 1 for text in above) - len(_CLOSING)
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
    whole = _data(text[: room + 1])
    if len(text) <= room and byte_length(whole) < room and whole.count("\n") < lines:
        return whole
    note = f"[cut here; the rest is in {path}]"
    kept = whole.encode("utf-8")[: max(0, room - byte_length(note) - 2)].decode("utf-8", "ignore")
    kept = "\n".join(kept.split("\n")[: max(0, lines - 1)])
    return f"{kept.rstrip()}\n{note}"


def _data(text: str) -> str:
    """Without anything that could end this element, look like another message, or steer a terminal."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    return whole_characters(_TAGS.sub("&lt;", _CONTROL.sub("", plain)))


def _attribute(text: str, most: int = NAME) -> str:
    flat = _CONTROL.sub("", text[:most]).replace("\n", " ").replace("\t", " ")
    for character, name in (('"', "&quot;"), ("<", "&lt;"), (">", "&gt;")):
        flat = flat.replace(character, name)
    return whole_characters(flat)
