"""The instruction files of one session: those it opens with, and those a touched file brings in.

Only the folders from the project's root to the working folder are looked at; everything below waits
until a file there is touched, so the size of a repository does not matter. Files are shown from the
least to the most particular, but room is given out in another order: what is the user's own before
what the project says, and near folders before far ones. A repository full of rules cannot push out
what the user wrote.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from sevenfold.memory.instructions import finding
from sevenfold.memory.instructions.border import Border, lexical
from sevenfold.memory.instructions.globs import Globs
from sevenfold.memory.instructions.taking import Cleaned, Source, Taking
from sevenfold.memory.instructions.values import (
    Instruction,
    Instructions,
    Kind,
    Limits,
    Loaded,
    Suspicion,
    shown,
)


class _Waiting(msgspec.Struct, frozen=True):
    """A rule that is for certain files."""

    rule: Cleaned
    globs: Globs
    start: Path


class _Group(NamedTuple):
    """Files that stand together: where they are shown, and when they are given room."""

    shown: tuple[int, ...]
    room: tuple[int, ...]
    sources: list[Source]


class InstructionFiles:
    """Finds and reads them. `load` once, then `touched` for every file that is read or written."""

    def __init__(
        self,
        root: Path,
        cwd: Path,
        *,
        home: Path,
        managed: Path,
        user_home: Path,
        trusted: bool,
        forbidden: Callable[[Path], bool],
        shared_home: Path | None = None,
        suspicious: Callable[[str], Sequence[Suspicion]] | None = None,
        limits: Limits | None = None,
        already: Iterable[str] = (),
    ) -> None:
        """`already`: what `known` said when the session was left; it is not loaded again."""
        self._root, self._cwd = _real(root), _real(cwd)
        self._managed = managed
        self._homes = [_real(path) for path in (shared_home, home) if path]
        self._limits = limits or Limits()
        own = (_real(managed), *self._homes)
        border = Border(self._root, trusted, forbidden, own)
        self._taking = Taking(border, user_home, self._limits, suspicious, tuple(already))
        self._look = finding.RuleFolders(border, self._limits, self._taking.warnings)
        self._waiting: list[_Waiting] = []
        self._globs = 0
        self._folders = set(finding.between(self._root, self._cwd) or [self._root])
        """Folders that have been looked at."""

    @property
    def known(self) -> tuple[str, ...]:
        """The real paths of everything in the conversation, to be kept for a later resume."""
        return tuple(self._taking.taken)

    def load(self) -> Instructions:
        """What the conversation opens with."""
        groups = [*self._own(), *self._project()]
        taken = {
            group.shown: self._take(group.sources) for group in sorted(groups, key=lambda g: g.room)
        }
        # Rules are met in the order in which room is given; they are to be shown like all others.
        self._waiting.sort(key=lambda one: (not one.rule.source.free, len(one.start.parts)))
        return Instructions(
            tuple(one for _, found in sorted(taken.items()) for one in found),
            tuple(_instruction(one.rule) for one in self._waiting),
            self._taking.warnings.drain(),
        )

    def touched(self, path: Path) -> Loaded:
        """What a file that is read or written brings in for the first time."""
        return Loaded((*self._nested(path), *self._matching(path)), self._taking.warnings.drain())

    def nested_for(self, path: Path) -> Loaded:
        """The instruction files of folders above a file that nobody has looked into yet."""
        return Loaded(tuple(self._nested(path)), self._taking.warnings.drain())

    def rules_for(self, path: Path) -> Loaded:
        """The rules whose globs mean this file, each once."""
        return Loaded(tuple(self._matching(path)), self._taking.warnings.drain())

    # --- the opening ----------------------------------------------------------------------------------

    def _own(self) -> Iterator[_Group]:
        owners: list[tuple[Path, Kind]] = [(self._managed, "managed")]
        owners += [(home, "user") for home in self._homes]
        for number, (folder, kind) in enumerate(owners):
            rules = finding.rules_of_owner(folder, kind, self._root, self._look)
            sources = [*finding.of_owner(folder, kind), *rules]
            yield _Group((0, number), (0, number), sources)

    def _project(self) -> Iterator[_Group]:
        for folder in sorted(self._folders):
            deep = len(folder.parts)
            yield _Group((1, deep, 0), (2, -deep), list(finding.of_folder(folder, self._root)))
            yield _Group((1, deep, 1), (3, -deep), self._rules(folder))
            yield _Group((2, deep), (1, -deep), list(finding.local_to(folder)))

    def _rules(self, folder: Path) -> list[Source]:
        return list(finding.rules_of_folder(folder, self._root, self._look))

    def _take(self, sources: Iterable[Source]) -> list[Instruction]:
        """What of it is for every file; rules for certain files are put aside."""
        found: list[Instruction] = []
        for source in sources:
            cleaned = self._taking.clean(source)
            if cleaned and cleaned.paths and source.start:
                self._put_aside(cleaned, source.start)
            elif cleaned:
                found += self._taking.include(cleaned)
        return found

    def _put_aside(self, rule: Cleaned, start: Path) -> None:
        warnings, path = self._taking.warnings, rule.source.path
        globs = Globs(rule.paths)
        if globs.problems:
            bad = shown(", ".join(globs.problems))
            warnings.add(f"{shown(path)}: these paths are too long or stand for too many: {bad}")
        if self._globs + globs.size > self._limits.globs:
            warnings.leave_out(path, f"the rules have more than {self._limits.globs:,} paths")
            return
        self._globs += globs.size
        self._waiting.append(_Waiting(rule, globs, start))

    # --- later ------------------------------------------------------------------------------------------

    def _nested(self, path: Path) -> list[Instruction]:
        real = _real(self._cwd / path)
        folder = real if real.is_dir() else real.parent
        found: list[Instruction] = []
        for at in finding.between(self._root, folder):
            if at in self._folders:
                continue
            if at.name in finding.PACKAGES:
                break
            self._folders.add(at)
            for sources in (
                finding.of_folder(at, self._root),
                self._rules(at),
                finding.local_to(at),
            ):
                found += self._take(sources)
        return found

    def _matching(self, path: Path) -> list[Instruction]:
        places = {lexical(self._cwd / path), _real(self._cwd / path)}
        found: list[Instruction] = []
        left: list[_Waiting] = []
        for one in self._waiting:
            below = [
                p.relative_to(one.start).as_posix() for p in places if p.is_relative_to(one.start)
            ]
            if any(one.globs.fit(name) for name in below):
                found += self._taking.include(one.rule)
            else:
                left.append(one)
        self._waiting = left
        return found


def load(
    root: Path,
    cwd: Path,
    *,
    home: Path,
    managed: Path,
    user_home: Path,
    trusted: bool,
    forbidden: Callable[[Path], bool],
    shared_home: Path | None = None,
) -> Instructions:
    """What a conversation in this folder opens with, for those who need nothing later."""
    return InstructionFiles(
        root,
        cwd,
        home=home,
        managed=managed,
        user_home=user_home,
        trusted=trusted,
        forbidden=forbidden,
        shared_home=shared_home,
    ).load()


def _instruction(rule: Cleaned) -> Instruction:
    source = rule.source
    return Instruction(source.path, source.kind, rule.text, rule.paths, source.why)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
