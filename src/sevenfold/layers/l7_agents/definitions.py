"""Which kinds of agent there are: those that are built in, the user's, and the project's.

    found = find_definitions(definition_folders(home, tree if trusted else None))
    fitted(found.definitions["reviewer"], tools, model)      with the tools and the model there really are

A later folder goes before an earlier one: built in, `<home>/agents`, `<tree>/.claude/agents`,
`<tree>/.sevenfold/agents`. Nothing of a workspace that nobody trusts may be loaded: what a definition says
becomes the first words of an agent that has tools. So its folders are not handed in at all.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from sevenfold.errors import Mistake
from sevenfold.layers.l7_agents.definition_file import (
    KEYS,
    Definition,
    Isolation,
    plain,
    read_definition,
    shown,
)
from sevenfold.messages import whole_characters

__all__ = [
    "BUILT_IN",
    "GENERAL",
    "Definition",
    "Found",
    "Isolation",
    "chosen",
    "definition_folders",
    "find_definitions",
    "fitted",
]

FOLDER: Final = "agents"
MOST: Final = 200
"""Definitions of one folder."""
NAMED: Final = 3
"""Files, and keys, that one line about a folder names."""
GENERAL: Final = "general-purpose"
_ALL: Final = "'sevenfold agents list' shows all"
_INSTEAD: Final = "the rules and hooks of the session hold for every agent"
_LISTED: Final = 40
"""Kinds that a mistake names."""
_FORMER: Final = {"task": "Agent"}
"""What tools are called elsewhere."""
_SIZES: Final = {
    "opus": "claude-opus-5-5",
    "sonnet": "claude-sonnet-5-5",
    "haiku": "claude-haiku-5-5",
}
"""Names of models that only say how large, as other programs' files have them."""


def _prompt(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8").strip()


BUILT_IN: Final[Mapping[str, Definition]] = {
    GENERAL: Definition(
        name=GENERAL,
        description="Takes on any task of several steps and reports: search, change, check. Has all tools.",
        prompt=_prompt("general_purpose.md"),
    ),
    "explore": Definition(
        name="explore",
        description="Finds out how something works or where something is, and changes nothing. "
        "For questions that take many searches.",
        prompt=_prompt("explore.md"),
        tools=("Read", "Grep", "Glob", "Bash"),
        only_looks=True,
    ),
}


class Found(msgspec.Struct, frozen=True):
    """The definitions by name, and what is to be said about their files."""

    definitions: dict[str, Definition]
    problems: tuple[str, ...] = ()
    """What somebody should mend, in a few lines for each folder."""
    every: tuple[str, ...] = ()
    """The same for each file by itself, however many there are."""
    notes: tuple[str, ...] = ()
    """Which definition stands in place of which; that may be just what was wanted."""


def definition_folders(home: Path, tree: Path | None) -> tuple[Path, ...]:
    """Where definitions are looked for, the last one going before all others.

    `home` is the user's folder, or the one that is shared with another program. `tree` is the project's,
    and None where the workspace is not trusted.
    """
    folders = [home / FOLDER]
    if tree is not None:
        folders += [tree / ".claude" / FOLDER, tree / ".sevenfold" / FOLDER]
    return tuple(folders)


def find_definitions(folders: Sequence[Path]) -> Found:
    """All definitions, those of later folders first. Never raises: what is wrong is said."""
    definitions = {_key(name): one for name, one in BUILT_IN.items()}
    problems, every, notes, looked = list[str](), list[str](), list[str](), set[str]()
    for folder in folders:
        if (
            real := os.path.realpath(folder)
        ) in looked:  # the user's folder and the project's may be one
            continue
        looked.add(real)
        found = _Folder(folder)
        problems += found.in_short()
        every += found.in_full()
        notes += found.in_place_of(definitions)
        definitions |= found.own
    by_name = {one.name: one for one in definitions.values()}
    return Found(by_name, tuple(problems), tuple(every), tuple(notes))


class _Folder:
    """The definitions of one folder, and what there is to say about them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.own: dict[str, Definition] = {}
        self._problems: list[str] = []
        self._unapplied: dict[Path, tuple[str, ...]] = {}
        self._unknown: dict[Path, tuple[str, ...]] = {}
        """Files, and the keys in them that mean nothing."""
        for path in _files(folder, self._problems):
            read = read_definition(path, folder)
            self._problems += read.problems
            for keys, into in ((read.unapplied, self._unapplied), (read.unknown, self._unknown)):
                if keys:
                    into[path] = keys
            if read.definition is not None:
                self._take(path, read.definition)

    def _take(self, path: Path, one: Definition) -> None:
        if (first := self.own.setdefault(_key(one.name), one)) is not one:
            self._problems.append(
                f"{shown(path)} is left out: {first.path} has the name {first.name!r} already; "
                "rename one"
            )

    def in_full(self) -> Iterator[str]:
        for path, keys in self._unapplied.items():
            yield f"{shown(path)}: not applied: {', '.join(keys)}; {_INSTEAD}"
        yield from self._problems
        for path, keys in self._unknown.items():
            said = ", ".join(keys[:10])
            yield f"{shown(path)}: nothing is done with {said}; the keys are {KEYS}"

    def in_short(self) -> Iterator[str]:
        """A few lines, however many files there are."""
        where = shown(self._folder)
        if self._unapplied:
            yield f"{where}: not applied: {_keys_in(self._unapplied)}; {_INSTEAD}; {_ALL}"
        yield from self._problems[:NAMED]
        if (more := len(self._problems) - NAMED) > 0:
            yield f"{where}: {more:,} more to be mended; {_ALL}"
        if self._unknown:
            yield f"{where}: nothing is done with {_keys_in(self._unknown)}; {_ALL}"

    def in_place_of(self, known: Mapping[str, Definition]) -> Iterator[str]:
        """Which of those that are known this folder replaces."""
        replaced = [(one, known[key]) for key, one in self.own.items() if key in known]
        for one, hidden in replaced[:NAMED]:
            what = hidden.path or f"the built-in agent {hidden.name!r}"
            yield f"{one.path} stands in place of {what}: the agent {one.name!r}"
        if (more := len(replaced) - NAMED) > 0:
            yield f"{shown(self._folder)}: {more:,} more stand in place of others of the same name"


def _keys_in(files: Mapping[Path, Sequence[str]]) -> str:
    keys = [*dict.fromkeys(key for keys in files.values() for key in keys)]
    return f"{_some(keys)} in {_some([plain(path.name) for path in files])}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def chosen(
    definitions: Mapping[str, Definition], name: str, also: Sequence[str] = ()
) -> Definition:
    """The definition of this name, in whatever case; `Mistake` names what there is, and `also` these."""
    if name in definitions:
        return definitions[name]
    keys = {_key(known): one for known, one in definitions.items()}
    if (found := keys.get(_key(name))) is not None:
        return found
    names = {_key(known): known for known in (*definitions, *also)}
    near = difflib.get_close_matches(_key(name), names, 1)
    hint = f"did you mean {names[near[0]]!r}? Those" if near else "those"
    asked = whole_characters(" ".join(name.split()))[:60]
    listed = [*names.values()]
    more = f" and {len(listed) - _LISTED:,} more" if len(listed) > _LISTED else ""
    raise Mistake(
        f"there is no agent of the kind {asked!r}; {hint} there are: "
        f"{', '.join(listed[:_LISTED])}{more}"
    )


def fitted(
    definition: Definition, tools: Collection[str], model: str
) -> tuple[Definition, tuple[str, ...]]:
    """The definition with the tools that there are, and what is to be said about it.

    `tools` are the names of all tools that an agent could have, `model` is that of whoever starts it. A
    tool that is not there is said and left out, never replaced by all of them.
    """
    where = definition.path or f"the agent {definition.name!r}"
    said = list[str]()
    missing = list[str]()
    kept = definition.tools
    if kept is not None:
        kept = tuple(dict.fromkeys(_resolved(kept, tools, missing)))
    if missing:
        hint = _meant(missing, tools) or "take it out, if it is not to come"
        said.append(f"{where}: no tool here is called {', '.join(missing[:10])}; {hint}")
    if definition.without:
        absent = list[str]()
        never = {*_resolved(definition.without, tools, absent)}
        kept = tuple(name for name in (tools if kept is None else kept) if name not in never)
        if absent:
            hint = _meant(absent, tools) or "take it out, if it is not to come"
            said.append(
                f"{where}: {', '.join(absent[:10])} in its disallowedTools denies nothing, for no tool "
                f"here is called so; {hint}"
            )
    wanted = definition.model
    if wanted is not None and wanted.lower() in _SIZES:
        at_home = model.removeprefix("anthropic:").startswith("claude-")
        wanted = _SIZES[wanted.lower()] if at_home else None
        if not at_home:
            said.append(
                f"{where}: {definition.model!r} says only how large its model is, and {model} is none of "
                "that family; it gets the same model, name one to change that"
            )
    return replace(definition, tools=kept, model=wanted), tuple(said)


def _meant(missing: Sequence[str], tools: Collection[str]) -> str:
    near = difflib.get_close_matches(missing[0], tools, 1)
    return f"did you mean {near[0]}?" if near else ""


def _resolved(names: Sequence[str], tools: Collection[str], missing: list[str]) -> Iterator[str]:
    """The tools that are meant, in whatever case; `mcp__x` and `mcp__x__*` mean all of one server."""
    known = {tool.lower(): tool for tool in tools}
    for name in names:
        lower = _FORMER.get(name.lower(), name).lower()
        pattern = f"{lower}__*" if lower.startswith("mcp__") and "__" not in lower[5:] else lower
        found = [tool for key, tool in known.items() if key == lower or fnmatchcase(key, pattern)]
        if not found:
            missing.append(name)
        yield from found


def _files(folder: Path, problems: list[str]) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        problems.append(f"{folder} could not be read: {why}; its agents are left out")
        return []
    names = [name for name in names if name.lower().endswith(".md") and name[0] != "."]
    if len(names) > MOST:
        problems.append(
            f"{folder} holds {len(names):,} definitions and only the first {MOST} count; remove some"
        )
    return [folder / name for name in names[:MOST]]


def _key(name: str) -> str:
    return name.casefold()
