"""What the model is given back after a compaction, so that it need not ask for it first.

The files it worked on last are read again from disk; what hooks said at the start is repeated; skills,
plans, listings, instruction files and a session title come in through the same seam, `Restorable`.
Every message says what it is and whether it was read just now.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

import msgspec

from sevenfold.facts import TYPED, call_of
from sevenfold.messages import Message, user
from sevenfold.tokens import Size, byte_length, scaled
from sevenfold.transcript import Placed, View

ALL: Final = 50_000
"""Tokens of everything that is given back, together. These shrink with the window."""
FILES: Final = 5
FILE: Final = 5_000
START: Final = 5_000
TEXT: Final = 5_000
NAMED: Final = 10
"""Files that are only named, because they are too long or no longer there."""
SKILL: Final = 5_000
SKILLS: Final = 25_000
MARGIN: Final = 20
"""Tokens that tags and rounding may take."""
LOOKED_AT: Final = 25
"""Files that are tried at most: a folder that was deleted need not be gone through."""

TITLE: Final = "title"
"""The name of the mark that says what a session is called."""

_OPENING, _CLOSING = "<context>\n", "\n</context>"
_FILES: Final = (
    "The older part of the conversation was replaced. These are the files that were read or changed last"
    " in it. They were read from disk just now: this is how they are, whatever was said of them before."
)
_LONG: Final = "Too long to be shown here; read what you need of them:"
_GONE: Final = "Gone, or not to be read as text now:"
_START: Final = (
    "The older part of the conversation was replaced. This is what hooks said when the session began,"
    " repeated word for word; they were not run again."
)


class Cut(msgspec.Struct, frozen=True):
    """What a compaction takes out of a view, and what stays."""

    view: View
    """As it was before."""
    gone: range
    """The places of the messages that leave it."""
    window: int

    @property
    def removed(self) -> Sequence[Placed]:
        return [self.view[at] for at in self.gone]

    @property
    def kept(self) -> Sequence[Placed]:
        return [placed for at, placed in enumerate(self.view) if at not in self.gone]

    def scaled(self, tokens: int) -> int:
        """A number of tokens of the 200,000-token world, in this window."""
        return int(scaled(tokens, self.window))

    def tokens(self, text: str) -> int:
        return self.view.calibration.tokens(Size(text=byte_length(text)))


class Restorable(Protocol):
    """Something that is to be in the view again after a compaction."""

    @property
    def name(self) -> str: ...

    def restored(self, cut: Cut, room: int) -> Message | None:
        """A message of at most `room` tokens, or None when there is nothing to give back."""
        ...


def restored(
    view: View,
    cut: int | range,
    restorables: Iterable[Restorable],
    window: int,
    room: int | None = None,
) -> list[Message]:
    """What to append behind the kept messages, in the order of `restorables`, within one budget.

    `cut` is where the kept messages begin, or the places that leave the view. `room` is how many tokens
    there are before the window is full again, if that is known. What is larger than it may be is left out.
    """
    gone = range(cut) if isinstance(cut, int) else cut
    here, out = Cut(view, gone, window), list[Message]()
    left = here.scaled(ALL) if room is None else min(here.scaled(ALL), room)
    for one in restorables:
        message = one.restored(here, left) if left > 0 else None
        if message is not None and (tokens := here.tokens(message.text)) <= left:
            out.append(message)
            left -= tokens
    return out


def context(text: str) -> Message:
    """Marked as ours; what it quotes cannot end it."""
    return user(_OPENING + _inside("context", text) + _CLOSING)


def _inside(tag: str, text: str) -> str:
    return text.replace(f"</{tag}", f"&lt;/{tag}")


# --- files --------------------------------------------------------------------------------------------


class Files:
    """The files that were read or changed last, as they are now.

    `read` gives the text of a file, or None when it is not there, not text, or not to be read: which of
    these, and what a link leads to, is decided there. `skip` says which are not to be given back.
    """

    name = "files"

    def __init__(
        self,
        read: Callable[[str], str | None],
        skip: Callable[[str], bool] = lambda path: False,
    ) -> None:
        self._read, self._skip = read, skip

    def restored(self, cut: Cut, room: int) -> Message | None:
        kept = set(touched(cut.kept))
        paths = [p for p in touched(cut.removed) if p not in kept and not self._skip(p)]
        found = _Found(cut, room)
        for path in paths[:LOOKED_AT]:
            if found.shown_or_long >= FILES:
                break
            found.take(path, self._text(path))
        return found.message

    def _text(self, path: str) -> str | None:
        try:
            return self._read(path)
        except (OSError, ValueError):  # ValueError: not text, or no path that could be
            return None


class _Found:
    """Files as they are found, newest first, as long as there is room."""

    def __init__(self, cut: Cut, room: int) -> None:
        self._cut, self._each = cut, cut.scaled(FILE)
        self._left = room - cut.tokens(_framed("", (), (), ())) - MARGIN
        self._shown: list[tuple[str, str]] = []
        self._names: dict[str, list[str]] = {}
        self._long: list[str] = []
        self._gone: list[str] = []

    @property
    def shown_or_long(self) -> int:
        return len(self._shown) + len(self._long)

    def take(self, path: str, text: str | None) -> None:
        if text is None:
            self._name(self._gone, path)
            return
        names = self._names.setdefault(text, [])
        if any(_same_file(path, name) for name in names):
            return
        names.append(path)
        if self._cut.tokens(text) <= self._each:
            part = _part(path, text)
            tokens = self._cut.tokens(f"- {path}\n{part}\n") + 1  # its name is above it too
            if tokens <= self._left:
                self._shown.append((path, part))
                self._left -= tokens
                return
        self._name(self._long, path)

    def _name(self, names: list[str], path: str) -> None:
        tokens = self._cut.tokens(f"- {path}\n") + 1
        if len(names) < NAMED and tokens <= self._left:
            names.append(path)
            self._left -= tokens

    @property
    def message(self) -> Message | None:
        if not (self._shown or self._long):
            return None
        parts = "\n".join(part for _, part in self._shown)
        return context(_framed(parts, [p for p, _ in self._shown], self._long, self._gone))


def _framed(parts: str, shown: Sequence[str], long: Sequence[str], gone: Sequence[str]) -> str:
    lines = [_FILES, *(f"- {path}" for path in shown)]
    lines += [_LONG, *(f"- {path}" for path in long)] if long or not parts else []
    lines += [_GONE, *(f"- {path}" for path in gone)] if gone or not parts else []
    return "\n".join([*lines, "", parts] if parts else lines)


def _same_file(path: str, other: str) -> bool:
    """Of two paths to the same text: whether one is the other in short."""
    return path.endswith(f"/{other}") or other.endswith(f"/{path}")


def _part(path: str, text: str) -> str:
    quoted = _inside("context", _inside("file", text))
    return f'<file path="{path}">\n{quoted}\n</file>'


def touched(messages: Sequence[Placed]) -> list[str]:
    """The files that tools read or changed here or that were given back here, the newest first."""
    failed = {
        result.tool_use_id
        for placed in messages
        for result in placed.message.results
        if result.is_error
    }
    paths: dict[str, None] = {}
    for placed in reversed(messages):
        for path in (*_called(placed.message, failed), *_files_given_back(placed)):
            if path.isprintable():
                paths.setdefault(posixpath.normpath(path))
    return list(paths)


def _called(message: Message, failed: set[str]) -> Iterator[str]:
    for use in reversed(message.tool_uses):
        call = call_of(use)
        if call.kind in ("read", "change") and use.id not in failed:
            yield call.about


def _files_given_back(placed: Placed) -> Iterator[str]:
    """Files of an earlier restoration: what was worked on then may be worked on still."""
    yield from given_back(placed, _FILES, _GONE)


def given_back(placed: Placed, what: str, until: str = "") -> Iterator[str]:
    """The list in a message of ours that begins with the words `what`, after an earlier compaction."""
    if placed.message.role != "user" or placed.by in TYPED:
        return
    text = placed.message.text
    if text.startswith(_OPENING + what):
        head = text.partition("\n\n")[0]
        head = head.partition(until)[0] if until else head
        yield from (one[2:] for one in head.splitlines() if one.startswith("- "))


# --- texts --------------------------------------------------------------------------------------------


class StartContext:
    """What hooks told the model before it first spoke."""

    name = "start hooks"

    def restored(self, cut: Cut, room: int) -> Message | None:
        texts = dict.fromkeys(_told_at_start(cut))
        room = min(room, cut.scaled(START))
        while texts:
            message = context("\n".join([_START, "", *texts]))
            if cut.tokens(message.text) <= room:
                return message
            texts.pop(next(iter(texts)))  # what was said later counts more
        return None


def _told_at_start(cut: Cut) -> Iterator[str]:
    """By hooks before the first reply, or given back by us after an earlier compaction."""
    first = True
    for at, placed in enumerate(cut.view):
        first = first and placed.message.role == "user"
        if at not in cut.gone or placed.by in TYPED or placed.message.role != "user":
            continue
        text = placed.message.text.removeprefix(_OPENING).removesuffix(_CLOSING).strip()
        if text.startswith(_START):
            yield text.removeprefix(_START).strip()
        elif first and placed.by == "hooks" and text:
            yield text


class Afresh:
    """A text that is asked for again at each compaction: a plan, a listing, an instruction file, a title.

    `what` is a sentence that says what it is; `read` gives it as it is now, or None.
    """

    def __init__(
        self, name: str, what: str, read: Callable[[], str | None], most: int = TEXT
    ) -> None:
        self.name = name
        self._what, self._read, self._most = what, read, most

    def restored(self, cut: Cut, room: int) -> Message | None:
        text = self._read()
        if not text or not text.strip():
            return None
        message = context(f"{self._what} It was read just now.\n\n{text}")
        fits = cut.tokens(message.text) <= min(room, cut.scaled(self._most))
        return message if fits else context(f"{self._what} It is too long to be repeated here.")


class Several:
    """Texts of one kind, such as the skills in use: each within a limit, and all of them within another.

    `read` gives them as they are now, name and text, what matters most first. What is too long, or finds
    no more room, is named.
    """

    def __init__(
        self,
        name: str,
        what: str,
        read: Callable[[], Iterable[tuple[str, str]]],
        each: int = SKILL,
        most: int = SKILLS,
    ) -> None:
        self.name = name
        self._what, self._read, self._each, self._most = what, read, each, most

    def restored(self, cut: Cut, room: int) -> Message | None:
        shown, named = list[str](), list[str]()
        for name, text in self._read():
            part = f"## {name}\n\n{text.strip()}"
            tried = self._message([*shown, part], named)
            fits = cut.tokens(text) <= cut.scaled(self._each)
            if fits and cut.tokens(tried.text) <= min(room, cut.scaled(self._most)):
                shown.append(part)
            else:
                named.append(name)
        return self._message(shown, named) if shown or named else None

    def _message(self, shown: Sequence[str], named: Sequence[str]) -> Message:
        left = [f"Not repeated here, for want of room: {', '.join(named)}."] if named else []
        return context("\n\n".join([f"{self._what} Read just now.", *shown, *left]))


_checks: tuple[type[Restorable], ...] = (Files, StartContext, Afresh, Several)
