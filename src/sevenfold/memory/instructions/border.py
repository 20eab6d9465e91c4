"""What may be read: inside the project everything that is text, outside it only what the user allows.

A repository that nobody has trusted yet must not be able to pull a private file into the
conversation: not by an include, not by a link, not by a folder of rules that is a link. Files that
usually hold keys or passwords are never taken, wherever they are and whoever asks.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

_ENDINGS: Final = """
    md mdx mdc markdown txt text rst adoc asciidoc org tex log csv tsv diff patch
    json jsonc json5 yaml yml toml ini cfg conf properties xml html htm css scss less svg
    sql graphql gql proto prisma feature sol tf gradle cmake mk make nix lock
    py pyi js jsx mjs cjs ts tsx mts cts vue svelte rb rake gemspec podspec go rs java kt kts scala
    swift m mm c h cc cpp cxx hpp cs fs vb php pl pm lua r jl ex exs erl hrl clj cljs hs ml mli elm
    dart zig nim el lisp vim sh bash zsh fish ps1 bat cmd j2 tmpl template example sample
"""
_NAMES: Final = """
    readme license licence copying notice authors contributors contributing changelog changes history
    news todo version makefile dockerfile containerfile justfile procfile gemfile rakefile brewfile
    vagrantfile jenkinsfile taskfile codeowners .gitignore .gitattributes .editorconfig .dockerignore
    .prettierrc .eslintrc .nvmrc .tool-versions .python-version
"""
TEXT: Final = frozenset(f".{ending}" for ending in _ENDINGS.split())
"""Endings of files that may be included."""
TEXT_NAMES: Final = frozenset(_NAMES.split())
"""Names without an ending that may be included, in any case."""
SPECIAL: Final = ("/proc", "/sys", "/dev", "/run/secrets", "/var/run/secrets")
"""Where files are not files, or hold what only running programs should see."""
OUTSIDE: Final = (
    "it is outside the project, and this folder is not trusted; if you know where it comes from, "
    "run 'sevenfold trust'"
)
SECRET: Final = "files of this name usually hold keys or passwords, and those are never included"
_SHARED_MEMORY: Final = Path("/dev/shm")


class Border(msgspec.Struct, frozen=True):
    """The project's edge, and what is never taken."""

    root: Path
    """The project's folder, every link followed."""
    trusted: bool
    forbidden: Callable[[Path], bool]
    own: tuple[Path, ...] = ()
    """Folders that are the user's or the machine's, every link followed."""

    def inside(self, real: Path) -> bool:
        return real.is_relative_to(self.root)

    def refusal(self, asked: Path, real: Path, *, free: bool) -> str:
        """Why a file may not be read; empty: it may. `free`: its place does not matter."""
        if _special(real):
            return "it is no ordinary file"
        if self.secret(asked) or self.secret(real):
            return SECRET
        if not (free or self.trusted or self.inside(real)):
            return OUTSIDE
        return ""

    def secret(self, path: Path) -> bool:
        """Judged by its place in the project: where the project itself lies says nothing."""
        return self.forbidden(path.relative_to(self.root) if self.inside(path) else path)

    def frees(self, real: Path, *, free: bool) -> bool:
        """Whether a file may itself include from anywhere: the user's may, the project's may not."""
        return free and (not self.inside(real) or any(real.is_relative_to(o) for o in self.own))


def is_text_name(path: Path) -> bool:
    return path.suffix.lower() in TEXT or path.name.lower() in TEXT_NAMES


def lexical(path: Path) -> Path:
    """The path with `..` taken at its word. Nothing on the disk is touched."""
    return Path(os.path.normpath(path))


def _special(real: Path) -> bool:
    return any(real.is_relative_to(place) for place in SPECIAL) and not real.is_relative_to(
        _SHARED_MEMORY
    )
