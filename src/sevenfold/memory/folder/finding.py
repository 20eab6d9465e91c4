"""Which memory somebody means: by its name, its file, or the beginning of either."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from sevenfold.memory.folder.naming import ENDING, is_copy, key, slug, wrong_with_name
from sevenfold.memory.refusing import Ambiguous, NoSuchMemory

_CLOSE: Final = 3


def meant(asked: str, names: Mapping[str, str]) -> str:
    """The file that is meant; `names` has the name of the memory in each file.

    What fits exactly goes before what fits loosely. `NoSuchMemory` names what comes close.
    """
    wanted = key(asked.strip())
    if asked in names:
        return asked
    loosely = wanted if not wrong_with_name(asked) else "/"  # which nothing begins with
    ways = (
        lambda file, name: name == asked.strip(),
        lambda file, name: key(name) == wanted or key(file) in (wanted, wanted + ENDING),
        lambda file, name: slug(name) == slug(loosely) != "",
        lambda file, name: key(name).startswith(loosely) or key(file).startswith(loosely),
    )
    for fits in ways:
        found = _first_choice(file for file, name in names.items() if fits(file, name))
        if len(found) == 1:
            return found[0]
        if found:
            raise Ambiguous(asked, found)
    raise NoSuchMemory(asked, close_to(asked, names))


def named(name: str, names: Mapping[str, str]) -> str | None:
    """The file of the memory with exactly this name; None when there is none."""
    found = _first_choice(file for file, each in names.items() if each == name)
    if len(found) > 1:
        raise Ambiguous(name, found)
    return found[0] if found else None


def _first_choice(files: Iterable[str]) -> list[str]:
    """Those that are meant: a memory goes before the copies that a clash has left of it."""
    found = sorted(files)
    return [file for file in found if not is_copy(file)] or found


def close_to(asked: str, names: Mapping[str, str]) -> list[str]:
    """The names that look most like what was asked for."""
    by_key = {key(name): name for name in names.values()}
    return [by_key[each] for each in difflib.get_close_matches(key(asked), by_key, _CLOSE)]
