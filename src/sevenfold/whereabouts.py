"""Which memory folder a project has, whether memory is on, and where its history is kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.errors import StorageFailure
from sevenfold.settings import Environment, Settings, memory_off, memory_path
from sevenfold.storage.files import make_private_dir, read_if_there, write_new
from sevenfold.storage.paths import checked
from sevenfold.storage.places import ROOT_FILE, Places, claim, slug_of

STATE: Final = "memory-state"
"""The folder of what belongs to a memory and is not memory: history, quarantine, search index."""


WORDS: Final = "words"


class MemoryPlace(msgspec.Struct, frozen=True):
    folder: Path
    state: Path
    words: Path
    """Where the table for recall by meaning is kept, one for all projects."""
    off: str | None = None
    """Why memory is off; None when it is on."""
    note: str = ""
    """What the user should be told once."""
    owner: Places | None = None
    """The project whose name the folder bears; None where somebody said which folder it is."""


def memory_place(places: Places, environment: Environment, settings: Settings) -> MemoryPlace:
    """Nothing is made here, and no project says where its memory is: settings have seen to that."""
    words = environment.home / WORDS
    off, told = memory_off(environment, settings), memory_path(environment, settings)
    if told is not None:
        folder = checked(told, _who(environment, settings), _person(environment))
        return MemoryPlace(folder, _state_elsewhere(folder, environment.home), words, off)
    if environment.shared is None:
        return MemoryPlace(places.memory, places.project / STATE, words, off, owner=places)
    folder = environment.shared / "projects" / slug_of(places.root) / "memory"
    state = _state_elsewhere(folder, environment.home)
    note = _of_another(state, places.root)
    return MemoryPlace(folder, state, words, off, note, owner=places)


def _who(environment: Environment, settings: Settings) -> str:
    if environment.memory_path:
        return "SEVENFOLD_MEMORY_PATH"
    if environment.remote and environment.remote_memory_dir:
        return "SEVENFOLD_REMOTE_MEMORY_DIR"
    return "memoryDirectory"


def _person(environment: Environment) -> Path:
    home = environment.variables.get("HOME")
    return Path(home) if home else Path.home()


def _state_elsewhere(folder: Path, home: Path) -> Path:
    """Two projects with one memory have one history of it, and others' folders hold nothing of ours."""
    return home / STATE / slug_of(Path(os.path.realpath(folder)))


def _of_another(state: Path, root: Path) -> str:
    """The slug is another program's: two roots may share it, and that can only be said."""
    known = _recorded(state / ROOT_FILE)
    if not known or known == str(root):
        return ""
    return (
        f"the memory of {root} is shared with {known}: both have the same name in the shared folder"
    )


def _recorded(file: Path) -> str:
    try:
        return msgspec.json.decode(read_if_there(file, 1 << 16) or b"{}", type=_Root).root
    except (StorageFailure, msgspec.DecodeError, UnicodeDecodeError):
        return ""


class _Root(msgspec.Struct):
    root: str = ""


def claimed(place: MemoryPlace) -> tuple[Path, Path]:
    """Write down whose memory this is, before anything is written there; its folder and its state.

    They are others when a project whose folder has the same name was faster. In the folder of another
    program the name is that program's: there the first is kept, and the second is told.
    """
    if place.owner is None:
        return place.folder, place.state
    if place.folder != place.owner.memory:
        make_private_dir(place.state)
        write_new(
            place.state / ROOT_FILE, msgspec.json.encode(_Root(str(place.owner.root))) + b"\n"
        )
        return place.folder, place.state
    places = claim(place.owner)
    return places.memory, places.project / STATE
