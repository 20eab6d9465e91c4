"""The notes on disk: read, checked, put right when somebody has damaged them, written all or nothing.

Both halves of the layer share one: who keeps the notes writes, who pays them out reads, and waits for an
update that is on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
import msgspec

from sevenfold.errors import StorageFailure
from sevenfold.events import Emit, Notice
from sevenfold.layers.l3_session_memory.notes import Form, Misshapen, normal
from sevenfold.layers.l3_session_memory.wording import Wording
from sevenfold.protocols import Clock
from sevenfold.restore import TITLE
from sevenfold.storage.files import failure, make_private_dir, read_head, write_atomic
from sevenfold.transcript import Id, Mark, View

NOTES: Final = "notes"
"""The name of the mark that says how far the notes go."""
DAMAGED: Final = "summary.damaged.md"
"""Where a file that is not of the form any more is put, beside the notes."""
UNDONE: Final = "summary.undone.md"
"""Where notes are put that tell what is not part of the conversation any more."""
LONGEST_TITLE: Final = 100
"""Characters."""
LARGEST: Final = 256 << 10
"""Bytes: far more than notes may hold; what is larger is something else."""


class Covered(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far the notes go."""

    tokens: int = 0
    """Of context, when they were last brought up to date."""
    size: int = 0
    """Tokens of the notes themselves."""
    last: Id = -1
    """The last message there was then."""
    anchor: Id = -1
    """The last one whose call is answered: what follows it is not in the notes."""

    @property
    def mark(self) -> Mark:
        return Mark(NOTES, msgspec.to_builtins(self))


class Notebook:
    """One conversation's notes."""

    def __init__(
        self, path: Callable[[], Path], clock: Clock, emit: Emit, home: Path | None = None
    ) -> None:
        self._path, self._clock, self._emit, self._home = path, clock, emit, home
        self._wording: Wording | None = None
        self._good: str | None = None
        self._missed = False
        self._covered: Covered | None = None
        self._began: float | None = None
        self._ended = anyio.Event()

    @property
    def path(self) -> Path:
        return self._path()

    @property
    def wording(self) -> Wording:
        """Read once: notes keep the form they were begun in."""
        if self._wording is None:
            self._wording = Wording.load(self._home, self._emit)
        return self._wording

    @property
    def form(self) -> Form:
        return self.wording.form

    # --- how far they go --------------------------------------------------------------------------------

    def covered(self, view: View) -> Covered | None:
        """What this process knows, and after a resume what the transcript says."""
        if self._covered is None and (marked := view.marks.get(NOTES)) is not None:
            try:
                self._covered = msgspec.convert(marked, Covered)
            except msgspec.ValidationError:
                return None
        return self._covered

    def anchor(self, view: View) -> int | None:
        """Where the last message stands that the notes cover; None when it is not in the view."""
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
        data = _whole(path)
        if data is None:
            gone = self._good is not None or (expected and not self._missed)
            return self._put_back(path, "was deleted") if gone else None
        if len(data) > LARGEST:
            return self._put_back(path, f"is larger than {LARGEST >> 10} KiB", aside=True)
        try:
            text = normal(data.decode("utf-8"))
            if "\0" in text:
                return self._put_back(path, "is not text", aside=True)
            self.form.bodies(text)
        except UnicodeDecodeError:
            return self._put_back(path, "is not UTF-8 text", aside=True)
        except Misshapen as why:
            return self._put_back(path, f"cannot be used: {why}", aside=True)
        self._good = text
        return text

    def _put_back(self, path: Path, why: str, *, aside: bool = False) -> str | None:
        done = []
        if aside:
            try:
                path.replace(path.with_name(DAMAGED))
            except OSError as error:
                raise failure(error, path, "put aside") from error
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
            raise failure(error, path, "put aside") from error
        text = f"{path} told what was undone: it is now {UNDONE}, and the notes are begun anew"
        self._emit(Notice(text))

    def write(self, text: str, before: str | None, covered: Covered) -> None:
        """Put new notes in place of those that were read before, unless somebody else just did."""
        path = self.path
        if self.read() != before:
            raise StorageFailure(f"{path} was changed while it was being brought up to date")
        make_private_dir(path.parent, nofollow=True)
        write_atomic(path, text.encode("utf-8", "replace"), nofollow=True)
        self._good, self._covered = text, covered

    def title(self, notes: str, view: View) -> tuple[Mark, ...]:
        """What the notes call this session, if they have a section for that and it says something new."""
        if "title" not in self.form.sections[0].title.casefold():
            return ()
        line = next(filter(None, map(str.strip, self.form.bodies(notes)[0].splitlines())), "")
        title = " ".join(line.split())[:LONGEST_TITLE].strip()
        return (Mark(TITLE, title),) if title and title != view.marks.get(TITLE) else ()


def _whole(path: Path) -> bytes | None:
    """The bytes of a file, one more than allowed if it is larger; None when there is none."""
    try:
        return read_head(path, LARGEST + 1, nofollow=True)
    except StorageFailure as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
