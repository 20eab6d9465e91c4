"""The notes on a session: their form, their wording and their file.

The form comes from a template: fixed headings, each with a fixed description below, and free text under
them. Notes are of that form when they have each heading once, in order. Template and instruction are ours,
or the user's own from `<home>/session-memory/config`. The file is checked, repaired and written whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
import msgspec

from sevenfold.core.errors import StorageFailure
from sevenfold.core.events import Emit, Notice
from sevenfold.core.tokens import TEXT_RATE, count_bytes, estimate_tokens, scale_constant
from sevenfold.core.transcript import Id, Mark, View
from sevenfold.layers.parts import LayerParts
from sevenfold.layers.shared.facts import clip_text, level_sizes
from sevenfold.layers.shared.restore import TITLE
from sevenfold.storage.files import (
    make_private_dir,
    make_storage_failure,
    read_head,
    read_if_there,
    write_atomic,
)

_HEADING: Final = r"#{1,3} +\S.*"
_ITALIC: Final = r"_[^_].*_|\*[^*].*\*"
_FENCE: Final = r" {0,3}(?:```|~~~)"
_NOTE: Final = 120  # Bytes that it takes to say how much was left out


class NotesFormError(ValueError):
    """A text is not of the form; the message says what was changed."""


class NotesSection(msgspec.Struct, frozen=True):
    """The two fixed lines of a section; the second may be missing in a template of the user's."""

    heading: str
    description: str = ""

    @property
    def title(self) -> str:
        return self.heading.lstrip("#").strip()


class NotesLimits(msgspec.Struct, frozen=True):
    """Tokens that a section and all sections together should hold at most."""

    section: int
    total: int

    @classmethod
    def of(cls, section: int, total: int, window: int) -> NotesLimits:
        return cls(max(1, int(scale_constant(section, window))), max(1, int(scale_constant(total, window))))


class NotesForm(msgspec.Struct, frozen=True):
    """The sections of a template, and what stands in the template besides them."""

    template: str
    preamble: str
    sections: tuple[NotesSection, ...]

    @classmethod
    def of(cls, template: str) -> NotesForm:
        """The form of a template; `NotesFormError` when it has no sections, or one of them twice."""
        lines = normalise_text(template).split("\n")
        starts = list(_headings(lines))
        if not starts:
            raise NotesFormError("it has no sections: begin each with a line such as '# Current state'")
        sections = tuple(NotesSection(lines[at].rstrip(), _description(lines, at)) for at in starts)
        named = [section.heading for section in sections]
        for heading in named:
            if named.count(heading) > 1:
                raise NotesFormError(f"it has the section '{heading}' more than once")
        preamble = "\n".join(lines[: starts[0]]).strip()
        return cls("\n".join(lines).strip() + "\n", preamble, sections)

    def bodies(self, text: str) -> tuple[str, ...]:
        """The text of each section. Raises `NotesFormError` if a fixed line was changed."""
        known = {section.heading: n for n, section in enumerate(self.sections)}
        found: list[int] = []
        parts: list[list[str]] = [[]]
        for line in normalise_text(text).split("\n"):
            if (at := known.get(line.rstrip())) is None:
                parts[-1].append(line)
            else:
                found.append(at)
                parts.append([])
        for n, section in enumerate(self.sections):
            if (times := found.count(n)) != 1:
                wrong = "is missing or was changed" if not times else "stands there more than once"
                raise NotesFormError(f"the heading '{section.heading}' {wrong}")
        for n, at in enumerate(found):
            if at != n:
                raise NotesFormError(f"the section '{self.sections[at].heading}' was moved")
        if "\n".join(parts[0]).strip() != self.preamble:
            raise NotesFormError("what stands before the first heading was changed")
        return tuple(map(_body, self.sections, parts[1:]))

    def empty(self, text: str) -> bool:
        """True if nothing was noted yet."""
        return self.bodies(text) == self.bodies(self.template)

    def written(self, bodies: Sequence[str]) -> str:
        """The text with these in its sections."""
        parts = [self.preamble] if self.preamble else []
        for section, body in zip(self.sections, bodies, strict=True):
            lines = (section.heading, section.description, body.strip("\n"))
            parts.append("\n".join(line for line in lines if line))
        return "\n\n".join(parts) + "\n"

    def too_long(self, text: str, limits: NotesLimits) -> list[str]:
        """The sections over their limit, in words for the model that is to shorten them."""
        sizes = [estimate_tokens(body) for body in self.bodies(text)]
        out = [
            f"'{section.title}' holds about {size:,} tokens, more than {limits.section:,}"
            for section, size in zip(self.sections, sizes, strict=True)
            if size > limits.section
        ]
        if (total := sum(sizes)) > limits.total:
            out.append(f"all sections hold about {total:,} tokens, more than {limits.total:,}")
        return out

    def cut_to(self, text: str, limits: NotesLimits, where: str = "") -> list[str]:
        """The text of each section, cut to size; `where` says where the rest can be found."""
        bodies = self.bodies(text)
        sizes = [count_bytes(body) for body in bodies]
        section, total = (int(tokens / TEXT_RATE) for tokens in (limits.section, limits.total))
        most = min(section, level_sizes([min(size, section) for size in sizes], total))
        return [
            body if size <= most else clip_text(body, max(0, most - _NOTE), where)
            for body, size in zip(bodies, sizes, strict=True)
        ]

    def shown(self, bodies: Sequence[str]) -> str:
        """The sections that say something, for a reader: descriptions are for who writes."""
        pairs = zip(self.sections, bodies, strict=True)
        return "\n\n".join(f"{section.heading}\n{body}" for section, body in pairs if body)


def normalise_text(text: str) -> str:
    """With line ends as we write them, and without the mark some editors put in front."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _headings(lines: Sequence[str]) -> Iterator[int]:
    fenced = False
    for at, line in enumerate(lines):
        if re.match(_FENCE, line):
            fenced = not fenced
        elif not fenced and re.fullmatch(_HEADING, line):
            yield at


def _description(lines: Sequence[str], heading: int) -> str:
    first = next(filter(None, map(str.strip, lines[heading + 1 :])), "")
    return first if re.fullmatch(_ITALIC, first) else ""


def _body(section: NotesSection, lines: Sequence[str]) -> str:
    text = "\n".join(lines).strip()
    first, _, rest = text.partition("\n")
    if section.description and first.strip() != section.description:
        raise NotesFormError(f"the description under '{section.heading}' is missing or was changed")
    return rest.strip() if section.description else text


CONFIG: Final = "session-memory/config"
LARGEST_WORDING: Final = 64 << 10  # Bytes of a template or an instruction of the user's
_HERE: Final = Path(__file__).parent
_NOTES, _PATH = "{{currentNotes}}", "{{notesPath}}"
_PLACES: Final = re.escape(_NOTES) + "|" + re.escape(_PATH)
_FORGOTTEN: Final = (
    (_PATH, "The file is {{notesPath}}."),
    (_NOTES, "This is what it holds now:\n\n<notes>\n{{currentNotes}}\n</notes>"),
)
_BY_TEXT: Final = (
    "There is no Edit tool in this conversation. Instead, answer with the sections that change and "
    "nothing else, each as\n\n"
    '<section title="Current state">\nall of its new text, without heading and description\n</section>'
    "\n\nSections that you leave out stay as they are."
)
_SECTION: Final = r'(?s)<section title="([^"\n]+)">\n?(.*?)</section>'


class NotesWording(msgspec.Struct, frozen=True):
    """The template of the notes, and the instruction by which the model keeps them."""

    form: NotesForm
    instruction: str

    @classmethod
    def load(cls, home: Path | None, emit: Emit) -> NotesWording:
        """The user's files where they can be used; what is wrong with one is said, and ours is taken."""
        form = NotesForm.of(_ours("template"))
        if own := _own(home, "template", emit):
            path, text = own
            try:
                form = NotesForm.of(text)
            except NotesFormError as why:
                _unused(path, str(why), emit)
        instruction = _own(home, "prompt", emit)
        return cls(form, instruction[1] if instruction else _ours("prompt"))

    def asking(self, notes: str, path: Path, limits: NotesLimits, *, edits: bool, last: str = "") -> str:
        """The instruction for an update. `last` is why the one before was not taken."""
        parts = [self.instruction.strip()]
        parts += [text for place, text in _FORGOTTEN if place not in self.instruction]
        values = {_NOTES: notes.strip(), _PATH: str(path)}
        asked = re.sub(_PLACES, lambda found: values[found[0]], "\n\n".join(parts))
        rest = [
            f"No section may hold more than about {limits.section:,} tokens, and all of them together "
            f"no more than {limits.total:,}."
        ]
        if offenders := self.form.too_long(notes, limits):
            rest.append("Too long now, and to be shortened first: " + "; ".join(offenders) + ".")
        if last:
            rest.append(f"The last update was not taken: {last}.")
        if not edits:
            rest.append(_BY_TEXT)
        return "\n\n".join([asked, *rest])

    def told(self, notes: str, answer: str) -> str:
        """The notes with the sections that an answer gives in words."""
        given = {
            title.strip(): body.strip() for title, body in re.findall(_SECTION, normalise_text(answer))
        }
        bodies = self.form.bodies(notes)
        titles = [section.title for section in self.form.sections]
        return self.form.written(
            [given.get(title, body) for title, body in zip(titles, bodies, strict=True)]
        )


def _ours(name: str) -> str:
    return (_HERE / f"{name}.md").read_text(encoding="utf-8")


def _own(home: Path | None, name: str, emit: Emit) -> tuple[Path, str] | None:
    if home is None:
        return None
    path = home / CONFIG / f"{name}.md"
    try:
        data = read_if_there(path, LARGEST_WORDING)
        text = None if data is None else normalise_text(data.decode("utf-8"))
    except (StorageFailure, UnicodeDecodeError) as error:
        _unused(path, str(error) if isinstance(error, StorageFailure) else "it is not UTF-8 text", emit)
        return None
    if text is None:
        return None
    if not text.strip() or "\0" in text:
        _unused(path, "it is empty" if not text.strip() else "it is not text", emit)
        return None
    return path, text


def _unused(path: Path, why: str, emit: Emit) -> None:
    emit(Notice(f"{path} is not used, and ours is: {why}", "warning"))


NOTES_FILE: Final = Path("session-memory", "summary.md")  # The notes, in the folder of their session
NOTES: Final = "notes"  # The name of the mark that says how far the notes go
DAMAGED: Final = "summary.damaged.md"  # The name for notes that do not have the form any more
UNDONE: Final = "summary.undone.md"  # The name for notes on a part of the conversation that was undone
LONGEST_TITLE: Final = 100  # Characters
LARGEST: Final = 256 << 10  # Bytes: far more than notes may hold; what is larger is something else


class NotesCoverage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of the conversation that the notes cover."""

    tokens: int = 0  # Of the conversation, when they were last brought up to date
    size: int = 0  # Tokens of the notes themselves
    last: Id = -1  # The last message there was then
    anchor: Id = -1  # The last one whose call is answered: what follows it is not in the notes

    @property
    def mark(self) -> Mark:
        return Mark(NOTES, msgspec.to_builtins(self))


def find_notes_path(transcript: Path) -> Path:
    """The notes on the session with this transcript, in its folder."""
    return transcript.with_suffix("") / NOTES_FILE


class Notebook:
    """One conversation's notes."""

    def __init__(self, parts: LayerParts, path: Path | None = None) -> None:
        """`path`: the file with the notes, if it is not in the folder of the conversation."""
        self._parts, self._own_path = parts, path
        self._clock, self._emit = parts.clock, parts.emit
        self._wording: NotesWording | None = None
        self._good: str | None = None
        self._missed = False
        self._covered: NotesCoverage | None = None
        self._began: float | None = None
        self._ended = anyio.Event()

    @property
    def path(self) -> Path:
        return self._own_path or find_notes_path(self._parts.conversation.transcript_path or Path())

    @property
    def wording(self) -> NotesWording:
        """Read once: notes keep the form they were begun in."""
        if self._wording is None:
            self._wording = NotesWording.load(self._parts.home, self._emit)
        return self._wording

    @property
    def form(self) -> NotesForm:
        return self.wording.form

    # --- how far they go --------------------------------------------------------------------------------

    def covered(self, view: View) -> NotesCoverage | None:
        """The coverage known to this process; after a resume, the one in the transcript."""
        if self._covered is None and (marked := view.marks.get(NOTES)) is not None:
            try:
                self._covered = msgspec.convert(marked, NotesCoverage)
            except msgspec.ValidationError:
                return None
        return self._covered

    def anchor(self, view: View) -> int | None:
        """The place of the last message that the notes cover; None when it is not in the view."""
        marked = view.marks.get(NOTES)
        known = [self._covered.anchor] if self._covered else []
        if isinstance(marked, dict) and isinstance(id := marked.get("anchor"), int):
            known.append(id)  # after a rewind it is the transcript that is right
        return next((at for id in known if (at := view.where(id)) is not None), None)

    # --- one update at a time ---------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return self._began is not None

    @contextmanager
    def updating(self) -> Iterator[None]:
        self._began, self._ended = self._clock.now(), anyio.Event()
        try:
            yield
        finally:
            self._began = None
            self._ended.set()

    async def settled(self, patience: float, stale: float) -> bool:
        """Wait for an update that is running, unless it has been for too long. True: none is any more.

        Where nothing runs nothing waits, so that plain code may ask too.
        """
        if self._began is None:
            return True
        if self._clock.now() - self._began >= stale:
            return False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._give_up, tasks.cancel_scope, patience)
            await self._ended.wait()
            tasks.cancel_scope.cancel()
        return not self.busy

    async def _give_up(self, scope: anyio.CancelScope, patience: float) -> None:
        await self._clock.sleep(patience)
        scope.cancel()

    # --- the file ---------------------------------------------------------------------------------------

    def read(self, *, expected: bool = False) -> str | None:
        """The notes, edits by hand included; None when there are none.

        A file that is not of the form is put aside and the last good one put back. What cannot be put
        right from here (a link, a folder, no permission) is a `StorageFailure`.
        """
        path = self.path
        try:
            data = read_head(path, LARGEST + 1, nofollow=True)
        except StorageFailure as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            gone = self._good is not None or (expected and not self._missed)
            return self._put_back(path, "was deleted") if gone else None
        if len(data) > LARGEST:
            return self._put_back(path, f"is larger than {LARGEST >> 10} KiB", aside=True)
        try:
            text = normalise_text(data.decode("utf-8"))
            if text == self._good:
                return text
            if "\0" in text:
                return self._put_back(path, "is not text", aside=True)
            self.form.bodies(text)
        except UnicodeDecodeError:
            return self._put_back(path, "is not UTF-8 text", aside=True)
        except NotesFormError as why:
            return self._put_back(path, f"cannot be used: {why}", aside=True)
        self._good = text
        return text

    def _put_back(self, path: Path, why: str, *, aside: bool = False) -> str | None:
        done = []
        if aside:
            try:
                path.replace(path.with_name(DAMAGED))
            except OSError as error:
                raise make_storage_failure(error, path, "put aside") from error
            done.append(f"it is now {DAMAGED}")
        if self._good is not None:
            write_atomic(path, self._good.encode("utf-8", "replace"), nofollow=True)
            done.append("the notes were put back as they were last")
        else:
            self._missed = True
            done.append("the notes are begun anew")
        self._emit(Notice(f"{path} {why}; {' and '.join(done)}", "warning"))
        return self._good

    def begin_anew(self) -> None:
        """Put the notes aside: they tell what was undone, and it must not come back through them."""
        self._good, self._covered, self._missed = None, None, True
        path = self.path
        try:
            path.replace(path.with_name(UNDONE))
        except FileNotFoundError:
            return
        except OSError as error:
            raise make_storage_failure(error, path, "put aside") from error
        self._emit(Notice(f"{path} told what was undone: it is now {UNDONE}, and the notes are begun anew"))

    def write(self, text: str, before: str | None, covered: NotesCoverage) -> None:
        """Put new notes in place of those that were read before, unless another writer just did."""
        path = self.path
        if self.read() != before:
            raise StorageFailure(f"{path} was changed while it was being brought up to date")
        make_private_dir(path.parent, nofollow=True)
        write_atomic(path, text.encode("utf-8", "replace"), nofollow=True)
        self._good, self._covered = text, covered

    def title(self, notes: str, view: View) -> tuple[Mark, ...]:
        """A mark with the title in the notes, if there is such a section and it says something new."""
        if "title" not in self.form.sections[0].title.casefold():
            return ()
        line = next(filter(None, map(str.strip, self.form.bodies(notes)[0].splitlines())), "")
        title = " ".join(line.split())[:LONGEST_TITLE].strip()
        return (Mark(TITLE, title),) if title and title != view.marks.get(TITLE) else ()
