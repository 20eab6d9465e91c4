"""What goes on beside the conversation, with the last thing that each piece of work said about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import msgspec

from sevenfold.cli.wording import work_name
from sevenfold.events import Event, Progress

if TYPE_CHECKING:
    from sevenfold.session import Session

DREAM: Final = "dream"
_NAMES: Final = {"Dreaming": DREAM, "Extraction": "extraction", "NotesKeeping": "notes"}
"""Work that is called by its layer, and what people call it."""


class Task(msgspec.Struct, frozen=True):
    """One piece of work."""

    name: str
    said: str = ""


class _Heard:
    """Keeps what work in the background said last."""

    def __init__(self) -> None:
        self.last: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progress):
            name = _NAMES.get(event.by, work_name(event.by))
            self.last[name] = "" if event.done else event.said


_heard: WeakKeyDictionary[Session, _Heard] = WeakKeyDictionary()


def tasks_of(session: Session) -> list[Task]:
    """What is going on now. From the first look on, what is said about it is heard."""
    if (heard := _heard.get(session)) is None:
        heard = _heard[session] = _Heard()
        session.subscribe(heard)
    names = [_NAMES.get(name, work_name(name)) for name in session.tray.running]
    return [Task(name, heard.last.get(name, "").removeprefix("dreaming: ")) for name in names]
