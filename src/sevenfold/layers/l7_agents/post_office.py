"""A team's post office: who is in the team, and the mailbox of each.

<home>/teams/<team>/members.json              who is in it
                    inboxes/<agent>.json      what waits for whom
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.errors import Refused
from sevenfold.events import Emit, Notice
from sevenfold.layers.l7_agents.frames import LEAD
from sevenfold.layers.l7_agents.letters import Letter, iso
from sevenfold.layers.l7_agents.mailbox import Mailbox
from sevenfold.layers.l7_agents.names import checked_name, same_name
from sevenfold.layers.l7_agents.set_aside import keep_entries, keep_file, listed, written
from sevenfold.layers.l7_agents.short_lock import held
from sevenfold.messages import Json
from sevenfold.protocols import Clock
from sevenfold.storage.files import TEMPORARY, read_if_there, write_atomic

TEAMS: Final = "teams"
INBOXES: Final = "inboxes"
MEMBERS: Final = "members.json"
MOST: Final = 200
"""Members of one team."""
_LARGEST: Final = 1_000_000
_UNFINISHED: Final = 3_600.0
"""Seconds after which nobody will finish a file any more."""


class About(msgspec.Struct, frozen=True, omit_defaults=True):
    """What others may know of a member."""

    kind: str = ""
    """The definition it follows; `lead` of the conversation that leads."""
    session: str = ""
    status: str = "running"
    """running, idle, done, failed or stopped."""


class Teammate(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody in a team."""

    name: str
    kind: str = ""
    session: str = ""
    status: str = "running"
    joined: str = ""


class PostOffice:
    """The post office of one team. Nothing is written before somebody joins or posts."""

    def __init__(
        self,
        home: Path,
        team: str,
        clock: Clock,
        emit: Emit,
        *,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.team = checked_name(team, "a team")
        self.folder = home / TEAMS / self.team
        self._clock, self._emit, self._sleep = clock, emit, sleep
        self._inboxes: dict[str, Mailbox] = {}

    def inbox(self, agent: str) -> Mailbox:
        """The mailbox of an agent, whether or not it has joined; the same one each time."""
        name = checked_name(agent)
        if name not in self._inboxes:
            path = self.folder / INBOXES / f"{name}.json"
            self._inboxes[name] = Mailbox(path, self._clock, self._emit, sleep=self._sleep)
        return self._inboxes[name]

    async def send(self, to: str, letter: Letter) -> bool:
        """Put a letter into the mailbox of a member; False: it was there already."""
        known = [member.name for member in self.members()]
        if to not in known:
            raise Refused(
                f"there is nobody called {to!r} in the team {self.team!r}: {_named(known)}"
            )
        return await self.inbox(to).accept(letter)

    # --- who is there -----------------------------------------------------------------------------------

    def members(self) -> tuple[Teammate, ...]:
        """In the order in which they joined; entries that cannot be read are left out."""
        data = read_if_there(self._file, _LARGEST, nofollow=True) or b""
        return tuple(member for entry in listed(data) or () if (member := _member(entry)))

    def others(self, name: str) -> tuple[Teammate, ...]:
        """All but this one: whom a message to all goes to."""
        return tuple(member for member in self.members() if member.name != name)

    @property
    def lead(self) -> str:
        """What the lead of the team is called."""
        return next((one.name for one in self.members() if one.kind == LEAD), LEAD)

    def join(self, agent: str, about: About | None = None) -> Teammate:
        """Become a member, or say something new about one. `Refused` when the name means another."""
        name = checked_name(agent)
        self._sweep()
        self._change(lambda entries: self._with(entries, name, about or About()))
        return next(member for member in self.members() if member.name == name)

    def say(self, agent: str, status: str) -> None:
        """What a member does now."""
        for member in self.members():
            if member.name == agent:
                self.join(agent, About(member.kind, member.session, status))

    def leave(self, agent: str) -> None:
        """Nobody can write to it by this name any more. What waits for it stays."""
        self._change(lambda entries: [entry for entry in entries if entry["name"] != agent])

    def clear(self) -> bool:
        """Remove the team's folder when nobody is in it and nothing waits; False: it stays."""
        inboxes = sorted((self.folder / INBOXES).glob("*.json"))
        if self.members() or any(self.inbox(path.stem).waiting() for path in inboxes):
            return False
        if self.folder.is_symlink() or not self.folder.is_dir():
            return False
        shutil.rmtree(self.folder, ignore_errors=True)
        return True

    def _with(self, entries: list[Json], name: str, about: About) -> list[Json]:
        told = msgspec.structs.asdict(about)
        if any(entry["name"] == name for entry in entries):
            return [entry | told if entry["name"] == name else entry for entry in entries]
        taken = next((e["name"] for e in entries if same_name(str(e["name"]), name)), None)
        if taken is not None:
            raise Refused(
                f"{name!r} cannot join the team {self.team!r}: {taken!r} is in it, and both would be "
                "one file on some systems; take another name"
            )
        if len(entries) >= MOST:
            raise Refused(f"the team {self.team!r} has {MOST} members, and that is the most")
        return [*entries, {"name": name, **told, "joined": iso(self._clock.now())}]

    def _sweep(self) -> None:
        """Unfinished files of processes that were killed long ago."""
        for folder in (self.folder, self.folder / INBOXES):
            for left in folder.glob(f"{TEMPORARY}*"):
                with contextlib.suppress(OSError):
                    if self._clock.now() - left.lstat().st_mtime > _UNFINISHED:
                        left.unlink()

    @property
    def _file(self) -> Path:
        return self.folder / MEMBERS

    def _change(self, change: Callable[[list[Json]], list[Json]]) -> None:
        with held(self._file, self._sleep):
            data = read_if_there(self._file, _LARGEST, nofollow=True) or b""
            found = listed(data)
            entries = [entry for entry in found or () if _member(entry)]
            if found is None:
                aside = keep_file(self._file)
                self._say_aside(aside)
            elif bad := [entry for entry in found if not _member(entry)]:
                self._say_aside(keep_entries(self._file, bad))
            new = change(entries)
            if new != found:
                write_atomic(self._file, written(new), nofollow=True)

    def _say_aside(self, aside: Path) -> None:
        text = f"{self._file} was damaged; what could not be read went to {aside.name}"
        self._emit(Notice(text, "warning"))


def _member(entry: Any) -> Teammate | None:
    try:
        member = msgspec.convert(entry, Teammate)
        checked_name(member.name)
    except (msgspec.ValidationError, Refused):
        return None
    return member


def _named(names: list[str]) -> str:
    return f"its members are {', '.join(names)}" if names else "nobody has joined it yet"
