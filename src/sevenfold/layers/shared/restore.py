"""The messages that the model is given back after a compaction, so that it need not ask for them.

A compaction calls its `Restorer`, which calls each `RestoreSource`: files worked on last, read again from
disk, what hooks said at the start, names, skills, plans, a title. Standing messages (instructions, index of
memory) always come back. `CompactionHooks` runs the user's hooks before and after any compaction.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, Protocol, TypeAlias

import msgspec

from sevenfold.core.events import Emit, Notice
from sevenfold.core.messages import Message, ToolUse, make_context_message
from sevenfold.core.tokens import MessageSize, count_bytes, scale_constant
from sevenfold.core.transcript import Id, PlacedMessage, View
from sevenfold.hooks.hooks import NOTHING, HookOutcome
from sevenfold.layers.shared.boundary import Boundary, sum_sizes
from sevenfold.layers.shared.facts import TYPED, summarise_call
from sevenfold.layers.shared.fidelity import iterate_strings

ALL: Final = 50_000  # Tokens of everything that is given back, together. These shrink with the window.
FILES: Final = 5
FILE: Final = 5_000
START: Final = 5_000
TEXT: Final = 5_000
NAMED: Final = 10  # Files that are only named, because they are too long or no longer there
SKILL: Final = 5_000
SKILLS: Final = 25_000
MARGIN: Final = 20  # Tokens that tags and rounding may take
LOOKED_AT: Final = 25  # Files that are tried at most: a folder that was deleted need not be gone through

TITLE: Final = "title"  # The name of the mark that says what a session is called

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


class CompactionCut(msgspec.Struct, frozen=True):
    """The part of a view that a compaction takes out, and the part that stays."""

    view: View  # As it was before
    gone: range  # The places of the messages that leave it
    window: int

    @property
    def removed(self) -> Sequence[PlacedMessage]:
        return [self.view[at] for at in self.gone]

    @property
    def kept(self) -> Sequence[PlacedMessage]:
        return [placed for at, placed in enumerate(self.view) if at not in self.gone]

    def scaled(self, tokens: int) -> int:
        """A number of tokens of the 200,000-token world, in this window."""
        return int(scale_constant(tokens, self.window))

    def tokens(self, text: str) -> int:
        return self.view.calibration.tokens(MessageSize(text=count_bytes(text)))


class RestoreSource(Protocol):
    """Something that is to be in the view again after a compaction."""

    @property
    def name(self) -> str: ...

    def restored(self, cut: CompactionCut, room: int) -> Message | None:
        """A message of at most `room` tokens, or None when there is nothing to give back."""
        ...


def restore_messages(
    view: View, cut: int | range, restorables: Iterable[RestoreSource], window: int, room: int | None = None
) -> list[Message]:
    """The messages to put before the one that stands for what left, in the order of `restorables`.

    `cut` is where the kept messages begin, or the places that leave the view. `room` is how many tokens
    there are before the window is full again, if that is known. All have one budget; what is larger than it
    may be is left out.
    """
    gone = range(cut) if isinstance(cut, int) else cut
    here, out = CompactionCut(view, gone, window), list[Message]()
    left = here.scaled(ALL) if room is None else min(here.scaled(ALL), room)
    for one in restorables:
        message = one.restored(here, left) if left > 0 else None
        if message is not None and (tokens := here.tokens(message.text)) <= left:
            out.append(message)
            left -= tokens
    return out


def _inside(tag: str, text: str) -> str:
    return text.replace(f"</{tag}", f"&lt;/{tag}")


# --- files --------------------------------------------------------------------------------------------


class RestoredFiles:
    """The files that were read or changed last, as they are now.

    `read` gives the text of a file, or None when it is not there, not text, or not to be read: which of
    these, and what a link leads to, is decided there. `skip` says which are not to be given back.
    """

    name = "files"

    def __init__(
        self,
        read: Callable[[str], str | None],
        skip: Callable[[str], bool] = lambda path: False,
        most: int = FILES,
        each: int = FILE,
        *,
        excerpts: bool = False,
    ) -> None:
        """`most`: files; `each`: tokens of one; `excerpts`: of a longer one its newest parts are shown."""
        self._read, self._skip, self._most, self._each = read, skip, most, each
        self._excerpts = excerpts

    def restored(self, cut: CompactionCut, room: int) -> Message | None:
        kept = set(find_touched_files(cut.kept))
        paths = [p for p in find_touched_files(cut.removed) if p not in kept and not self._skip(p)]
        parts = find_worked_parts(cut.removed) if self._excerpts else {}
        found = _FoundFiles(cut, room, cut.scaled(self._each), parts)
        for path in paths[:LOOKED_AT]:
            if found.shown_or_long >= self._most:
                break
            found.take(path, self._text(path))
        return found.message

    def _text(self, path: str) -> str | None:
        try:
            return self._read(path)
        except (OSError, ValueError):  # ValueError: not text, or no path that could be
            return None


class _FoundFiles:
    """Files as they are found, newest first, as long as there is room."""

    def __init__(
        self, cut: CompactionCut, room: int, each: int, parts: Mapping[str, Sequence[WorkedPart]]
    ) -> None:
        self._cut, self._each, self._parts = cut, each, parts
        self._left = room - cut.tokens(_framed("", (), (), ())) - MARGIN
        self._shown: list[tuple[str, str]] = []
        self._taken: list[tuple[str, str]] = []
        self._long: list[str] = []
        self._gone: list[str] = []

    @property
    def shown_or_long(self) -> int:
        return len(self._shown) + len(self._long)

    def take(self, path: str, text: str | None) -> None:
        if text is None:
            self._name(self._gone, path)
            return
        for known, other in self._taken:
            if (path.endswith(f"/{known}") or known.endswith(f"/{path}")) and text == other:
                return  # the same file, named in short
        self._taken.append((path, text))
        where = ""
        if self._cut.tokens(text) > self._each:
            text, where = cut_excerpts(text, self._parts.get(path, ()), self._each / self._cut.tokens(text))
        if text:
            quoted = _inside("context", _inside("file", text))
            part = f'<file path="{path}"{where}>\n{quoted}\n</file>'
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
        return make_context_message(_framed(parts, [p for p, _ in self._shown], self._long, self._gone))


def _framed(parts: str, shown: Sequence[str], long: Sequence[str], gone: Sequence[str]) -> str:
    lines = [_FILES, *(f"- {path}" for path in shown)]
    lines += [_LONG, *(f"- {path}" for path in long)] if long or not parts else []
    lines += [_GONE, *(f"- {path}" for path in gone)] if gone or not parts else []
    return "\n".join([*lines, "", parts] if parts else lines)


AROUND: Final = 3  # Lines that are shown before and after a part that was worked on


class WorkedPart(msgspec.Struct, frozen=True):
    """A part of a file that was changed or read: by its text, or by its lines."""

    text: str = ""
    first: int = 0  # The first line, counted from 0; without a text
    lines: int = 0


def find_worked_parts(messages: Sequence[PlacedMessage]) -> dict[str, list[WorkedPart]]:
    """The parts of files that tools changed, or read by their lines; the newest first."""
    parts: dict[str, list[WorkedPart]] = {}
    for placed in reversed(messages):
        for use in reversed(placed.message.tool_uses):
            call = summarise_call(use)
            if call.kind in ("read", "change"):
                parts.setdefault(posixpath.normpath(call.about), []).extend(_list_parts(use))
    return parts


def _list_parts(use: ToolUse) -> Iterator[WorkedPart]:
    edits = use.input.get("edits")
    for edit in (use.input, *(edits if isinstance(edits, list) else ())):
        if isinstance(edit, dict) and isinstance(new := edit.get("new_string"), str) and new.strip():
            yield WorkedPart(new)
    first, count = use.input.get("offset"), use.input.get("limit")
    if isinstance(count, int) and count > 0:
        yield WorkedPart(first=max(0, first - 1) if isinstance(first, int) else 0, lines=count)


def cut_excerpts(text: str, parts: Sequence[WorkedPart], share: float) -> tuple[str, str]:
    """The lines around these parts as they are now, at most such a share of the text, and their numbers."""
    lines = text.split("\n")
    left, chosen = int(len(text) * share), set[int]()
    for part in parts:
        if (span := _find_span(text, part)) is None:
            continue
        around = range(max(0, span[0] - AROUND), min(len(lines), span[1] + AROUND))
        new = [at for at in around if at not in chosen]
        size = sum(len(lines[at]) + 1 for at in new)
        if size > left:
            continue
        left -= size
        chosen.update(new)
    if not chosen:
        return "", ""
    spans = _join_numbers(sorted(chosen))
    shown = "\n…\n".join("\n".join(lines[a : b + 1]) for a, b in spans)
    return shown, f' lines="{", ".join(f"{a + 1}-{b + 1}" for a, b in spans)}"'


def _find_span(text: str, part: WorkedPart) -> tuple[int, int] | None:
    if not part.text:
        return part.first, part.first + part.lines
    at = text.find(part.text)
    if at < 0:
        return None
    first = text.count("\n", 0, at)
    return first, first + part.text.count("\n") + 1


def _join_numbers(numbers: Sequence[int]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for one in numbers:
        if spans and one == spans[-1][1] + 1:
            spans[-1] = spans[-1][0], one
        else:
            spans.append((one, one))
    return spans


def find_touched_files(messages: Sequence[PlacedMessage]) -> list[str]:
    """The files that tools read or changed here or that were given back here, the newest first."""
    failed = {
        result.tool_use_id for placed in messages for result in placed.message.results if result.is_error
    }
    paths: dict[str, None] = {}
    for placed in reversed(messages):
        restored = find_restored_names(placed, _FILES, _GONE)  # worked on then, and maybe still
        calls = (summarise_call(use) for use in reversed(placed.message.tool_uses) if use.id not in failed)
        touched = (call.about for call in calls if call.kind in ("read", "change"))
        for path in (*touched, *restored):
            if path.isprintable():
                paths.setdefault(posixpath.normpath(path))
    return list(paths)


def find_restored_names(placed: PlacedMessage, what: str, until: str = "") -> Iterator[str]:
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
    """Repeats what hooks told the model before its first reply."""

    name = "start hooks"

    def restored(self, cut: CompactionCut, room: int) -> Message | None:
        texts = dict.fromkeys(_told_at_start(cut))
        room = min(room, cut.scaled(START))
        while texts:
            message = make_context_message("\n".join([_START, "", *texts]))
            if cut.tokens(message.text) <= room:
                return message
            texts.pop(next(iter(texts)))  # what was said later counts more
        return None


def _told_at_start(cut: CompactionCut) -> Iterator[str]:
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


class RestoredText:
    """A text that is asked for again at each compaction: a plan, a listing, an instruction file, a title.

    `what` is a sentence that says what it is; `read` gives it as it is now, or None.
    """

    def __init__(self, name: str, what: str, read: Callable[[], str | None], most: int = TEXT) -> None:
        self.name = name
        self._what, self._read, self._most = what, read, most

    def restored(self, cut: CompactionCut, room: int) -> Message | None:
        text = self._read()
        if not text or not text.strip():
            return None
        message = make_context_message(f"{self._what} It was read just now.\n\n{text}")
        if cut.tokens(message.text) <= min(room, cut.scaled(self._most)):
            return message
        return make_context_message(f"{self._what} It is too long to be repeated here.")


class RestoredTexts:
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

    def restored(self, cut: CompactionCut, room: int) -> Message | None:
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
        return make_context_message("\n\n".join([f"{self._what} Read just now.", *shown, *left]))


_checks: tuple[type[RestoreSource], ...] = (RestoredFiles, StartContext, RestoredText, RestoredTexts)


EACH: Final = 200  # Names of one file or tool
SHORTEST, LONGEST = 5, 60  # Letters of a name
LONGEST_PLACE: Final = 300  # Of a longer path the tool is named
LONG: Final = 20_000  # Characters of one text that are looked at
PART: Final = 4_000  # ... and so many at a time, to the end of a line
_WHAT: Final = (
    "The older part of the conversation was replaced. These names stood in what was read and written in"
    " it, the newest first, each under the file or the tool where it was seen last. They are names and no"
    " more: read the place before relying on one."
)
_NAME: Final = (
    r"(?:[A-Za-z](?<!\w.)[a-z]*+(?!\w|[./-]\w)[^A-Za-z_]*+)++"
    r"|([A-Za-z_](?<!\w.)[A-Za-z0-9_]*+(?!\w)(?:[./-][A-Za-z0-9_]++(?!\w))*+)"
)
"""The group is a possible name or path; words of a language are passed over, many at a time."""
_SHAPED: Final = r"[a-z][A-Z]|[A-Z]{2}[a-z]|_\w|[A-Za-z]\d|\w[./]\w|-.*-"
"""Plain words say nothing about where they are from; with a dot or a slash they say of what they are a
part. One hyphen makes no name: line-based, re-run."""
_RANDOM: Final = re.compile(
    r"(?:^|[._/-])(?:(?:[A-Za-z]*\d){4}|(?=[A-Za-z0-9]{12})[A-Za-z]*\d+[A-Za-z]|[A-Z0-9]{16})"
)
"""The beginning of a key or a hash, between the signs that join the parts of a name."""
_CREDENTIAL: Final = re.compile(
    r"^.*(?:(?:passw(?:or)?d|passphrase|secret|token|api_?key|credential|bearer)\w*[\"']?\s*[:=]"
    r"|\w://[^/\s:@]+:[^/\s@]+@).*$",
    re.IGNORECASE | re.MULTILINE,
)
_WORDS: Final = (
    *("passw", "passphrase", "secret", "token", "apikey", "api_key", "credential", "bearer"),
    "://",
)
"""One of these stands in every line that `_CREDENTIAL` finds ..."""
_GIVEN: Final = r"(?<!://)\w*[\"']?\s*[:=]|(?<=://)[^/\s:@]+:[^/\s@]+@"
"""... with this behind it."""
KNOWN: Final = 20_000  # Names of which it is remembered whether they tell anything


class RestoredNames:
    """Gives back names, the newest first, as many as `most` tokens have room for; less in small windows."""

    name = "names"

    def __init__(self, most: int) -> None:
        self._most = most

    def restored(self, cut: CompactionCut, room: int) -> Message | None:
        room = min(room, cut.scaled(self._most)) - cut.tokens(_WHAT) - MARGIN
        rate = cut.tokens("x" * 4_000) / 4_000
        found = _FoundNames(int(room / rate) if rate else 0)
        for place, text in _texts(cut.removed):
            if found.full:
                break
            found.take(place, text)
        return make_context_message("\n".join([_WHAT, *found.lines])) if found.lines else None


class _FoundNames:
    """Names by place. Each name stands once, and so many bytes are left for more."""

    def __init__(self, room: int) -> None:
        self._left = room
        self._seen: set[str] = set()  # Also those that tell nothing
        self._places: dict[str, list[str]] = {}

    @property
    def full(self) -> bool:
        return self._left <= 0

    def take(self, place: str, text: str) -> None:
        here = self._places.get(place, [])
        if len(here) >= EACH:
            return
        own = place.lstrip("./")  # as the pattern finds it
        for name in _iterate_names(text[:LONG]):
            if len(here) >= EACH or self._left <= 0:
                break
            if name in self._seen or name == own:
                continue
            self._seen.add(name)
            if not SHORTEST <= len(name) <= LONGEST or not _tells(name):
                continue
            self._left -= len(name) + len(", ") + (0 if here else len(place.encode()) + len("- : "))
            here.append(name)
        if here:
            self._places[place] = here
            self._seen.add(own)

    @property
    def lines(self) -> list[str]:
        return [f"- {place}: {', '.join(names)}" for place, names in self._places.items()]


@lru_cache(maxsize=KNOWN)
def _tells(name: str) -> bool:
    return re.search(_SHAPED, name) is not None and _RANDOM.search(name) is None


def _iterate_names(text: str) -> Iterator[str]:
    """Names and paths in a text, in their order; a part at a time: its first names may be enough."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + PART) + 1 or len(text)
        yield from re.findall(_NAME, _harmless(text[start:end]))
        start = end


def _harmless(text: str) -> str:
    """Without the lines that `_CREDENTIAL` finds. Only lines that have one of the words are looked at."""
    folded = text.casefold()
    there = [word for word in _WORDS if word in folded]
    if not there:
        return text
    is_given, ends = re.compile(_GIVEN).match, (end for word in there for end in _each(word, folded))
    places = {folded.rfind("\n", 0, end) + 1 for end in ends if is_given(folded, end)}
    if len(folded) != len(text):  # places in one are not places in the other
        return _CREDENTIAL.sub("", text)
    parts, kept = list[str](), 0
    for start in sorted(places):
        if start >= kept and (found := _CREDENTIAL.match(text, start)):
            parts.append(text[kept:start])
            kept = found.end()
    return "".join([*parts, text[kept:]])


def _each(word: str, text: str) -> Iterator[int]:
    """The end of each place where the text has this word."""
    at = text.find(word)
    while at >= 0:
        yield at + len(word)
        at = text.find(word, at + 1)


def _texts(removed: Sequence[PlacedMessage]) -> Iterator[tuple[str, str]]:
    """Texts of tools and earlier lists of names, each with its place; the newest first."""
    uses = {use.id: use for placed in removed for use in placed.message.tool_uses}
    failed: set[str] = set()
    for placed in reversed(removed):
        for one in find_restored_names(placed, _WHAT):  # what was seen then may be needed still
            place, colon, names = one.rpartition(": ")
            if colon:
                yield place, names
        for result in reversed(placed.message.results):
            use = uses.get(result.tool_use_id)
            if result.is_error:
                failed.add(result.tool_use_id)
            elif use is not None:
                yield _place(use), result.text
        for use in reversed(placed.message.tool_uses):
            if use.id not in failed:
                yield _place(use), "\n".join(iterate_strings(use.input))


def _place(use: ToolUse) -> str:
    call = summarise_call(use)
    place = call.about if call.kind in ("read", "change") else use.name
    return place if place.isprintable() and len(place) <= LONGEST_PLACE else use.name


_check: type[RestoreSource] = RestoredNames


SHARE: Final = 0.75  # The most of the room for messages that it may take: in the rest, work has to go on
RESTORED: Final = 0.5
"""The most of the room that a compaction leaves that everything else that is given back may take."""

Stands: TypeAlias = Callable[[PlacedMessage], bool]
"""True for a message that has to be in the view after every compaction."""


class StandingMessages(Protocol):
    """Messages that have to be in the view after every compaction."""

    @property
    def stands(self) -> Stands: ...

    def again(self, cut: CompactionCut, room: int) -> Sequence[Message]:
        """The messages as they are now, within `room` tokens; none if they have not left the view."""
        ...


class RestoreEstimate:
    """The tokens of leaving messages that come back. `room`: tokens that there are for messages."""

    def __init__(self, view: View, stands: Stands | None, room: int) -> None:
        self._view, self._most = view, max(0, int(room * SHARE))
        self._places = [at for at, one in enumerate(view) if stands(one)] if stands else []

    @property
    def all(self) -> int:
        return self.between(0, len(self._view))

    def between(self, first: int, end: int) -> int:
        """The tokens that come back if messages `first` to before `end` leave."""
        gone = [self._view[at] for at in self._places if first <= at < end]
        return min(self._most, self._view.calibration.tokens(sum_sizes(gone))) if gone else 0


class Restorer:
    """Gives back after a compaction: the standing messages, and of the sources what there is room for."""

    def __init__(
        self, sources: Sequence[RestoreSource] = (), standing: StandingMessages | None = None
    ) -> None:
        self.sources, self._standing = tuple(sources), standing

    @property
    def stands(self) -> Stands | None:
        return self._standing.stands if self._standing else None

    def __call__(self, cut: CompactionCut, room: int, whole: int) -> list[Message]:
        """`room`: tokens that may be filled again; `whole`: the same for standing messages."""
        first = self.restore_standing(cut, whole)
        room -= sum(cut.tokens(message.text) for message in first)
        return [*first, *self.restore_sources(cut, room)]

    def restore_standing(self, cut: CompactionCut, room: int) -> Sequence[Message]:
        return self._standing.again(cut, max(0, room)) if self._standing else ()

    def restore_sources(self, cut: CompactionCut, room: int) -> list[Message]:
        """Fills the share of `room` that sources may take."""
        share = max(0, int(room * RESTORED))
        return restore_messages(cut.view, cut.gone, self.sources, cut.window, share)


AUTO: Final = "auto"  # The trigger that hooks see for an automatic compaction; else it is `manual`

REFUSED: Final = "a hook refused the compaction: "

Before: TypeAlias = Callable[[str, str], Awaitable[HookOutcome]]
"""The user's hooks, with `auto` or `manual` and the instructions so far: they add to them, or refuse."""
Afterwards: TypeAlias = Callable[[Boundary, str], Awaitable[Sequence[Message]]]
"""The user's hooks, with the record and the text that takes the place of the older part. What they have
to say to the model is written with the compaction."""


async def agree_to_compaction(trigger: str, instructions: str) -> HookOutcome:
    return NOTHING


async def ignore_compaction(boundary: Boundary, text: str) -> Sequence[Message]:
    return ()


class CompactionRefused(Exception):
    """A hook of the user refused; the message is its reason."""


class CompactionHooks:
    """The user's hooks, shared by all layers of a conversation that replace its older part."""

    def __init__(self, before: Before = agree_to_compaction, after: Afterwards = ignore_compaction) -> None:
        self._before, self.told = before, after
        self._asked: tuple[Id, str] | None = None
        self._answer = NOTHING
        self._refused = ""

    async def ask(self, view: View, trigger: str = AUTO, instructions: str = "") -> str:
        """The instructions, with what hooks add to them. Raises `CompactionRefused` if one refuses."""
        outcome = await self._outcome(view, trigger, instructions)
        if outcome.block or outcome.stop:
            raise CompactionRefused(outcome.reason)
        self._refused = ""
        return "\n\n".join(text for text in (instructions, *outcome.contexts) if text.strip())

    async def _outcome(self, view: View, trigger: str, instructions: str) -> HookOutcome:
        now = (view[-1].id if len(view) else -1, instructions)
        if trigger == AUTO and now == self._asked:
            return self._answer
        outcome = await self._before(trigger, instructions)
        if trigger == AUTO:
            self._asked, self._answer = now, outcome
        return outcome

    def decline(self, reason: str, emit: Emit) -> None:
        """Emit that a hook refused, unless the same was the last thing emitted here."""
        said = f"{REFUSED}{reason}"
        if said != self._refused:
            emit(Notice(said, "warning"))
        self._refused = said
