"""Which files a shell command names, as far as that can be told without running it."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.tools.command_rules import words_of
from sevenfold.tools.path_rules import Place
from sevenfold.tools.paths import secret

_STREAMS: Final = frozenset(
    map(Path, ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty"))
)
_MOST_FILES: Final = 1_000
_MOST_WILD: Final = 2
_MOST_FOLDERS: Final = 8
_WILD: Final = re.compile(r"[*?\[]")
# Signs that mean nothing inside quotes are swapped for others while the command is taken apart.
_QUOTED: Final = re.compile(r"""'[^']*'|\\.|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
_SIGNS: Final = "*?[{}$`"
_STAND_INS: Final = "".join(map(chr, range(0xE000, 0xE000 + len(_SIGNS))))
_HIDE: Final = str.maketrans(_SIGNS, _STAND_INS)
_HIDE_SOME: Final = str.maketrans(_SIGNS[:5], _STAND_INS[:5])
_SHOW: Final = str.maketrans(_STAND_INS, _SIGNS)
_VARIABLE: Final = re.compile(r"`|\$(?!HOME\b|PWD\b|\?)[\w{(@*#!$'\"-]")
_BRACES: Final = re.compile(r"\{[^{}\s]*(?:,|\.\.)[^{}\s]*\}")
_MOVES: Final = frozenset({"pushd", "popd"})


class Reach(msgspec.Struct, frozen=True):
    """The places a command names, and why there may be others."""

    places: tuple[Place, ...] = ()
    unclear: str = ""
    redirected: bool = False
    """Whether something is fed from a file, which the words of a rule do not show."""


def reach(command: str, parts: Sequence[str] | None, cwd: Path, home: Path) -> Reach:
    """Every word that could be a path, seen from every folder in which the command may be."""
    hidden = _QUOTED.sub(_without_signs, command)
    words = _words(hidden)
    if words is None:
        return Reach(unclear="its quotes cannot be read", redirected=True)
    folders, unclear = _folders(parts or (), cwd, home)
    programs = {found[0] for part in parts or () if (found := words_of(part))}
    places: dict[Path, Place] = {}
    for word in words:
        if word in programs:
            continue
        for text in _candidates(_filled(word, cwd, home)):
            for folder in folders:
                paths, doubt = _paths(text, folder, home)
                unclear = unclear or doubt
                places |= {path: Place.of(path) for path in paths if _counts(path, word)}
    redirected = "<" in _QUOTED.sub("_", command)
    return Reach(tuple(places.values()), unclear or _dynamic(hidden), redirected)


def _counts(path: Path, word: str) -> bool:
    """Whether there is something to read; in `HEAD:path` it may be in the past."""
    return path not in _STREAMS and (os.path.lexists(path) or (":" in word and secret(path)))


def _without_signs(quoted: re.Match[str]) -> str:
    text = quoted[0]
    if text[0] != '"':
        return text.translate(_HIDE)
    return _ESCAPED.sub(lambda escape: escape[0].translate(_HIDE), text.translate(_HIDE_SOME))


def moves_to(part: str) -> str | None:
    """The folder that a plain `cd` goes to; None: it is something else."""
    words = words_of(part)
    if not words or words[0] != "cd" or len(words) != 2 or words[1].startswith("-"):
        return None
    return words[1]


def _words(command: str) -> list[str] | None:
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:
        return None


def _filled(word: str, cwd: Path, home: Path) -> str:
    for name, value in (("HOME", home), ("PWD", cwd)):
        word = word.replace(f"${{{name}}}", str(value)).replace(f"${name}", str(value))
    return word


def _folders(parts: Sequence[str], cwd: Path, home: Path) -> tuple[list[Path], str]:
    folders = [cwd]
    for part in parts:
        words = words_of(part) or [""]
        target = moves_to(part)
        if words[0] in _MOVES or (words[0] == "cd" and target is None):
            return folders, "it goes to a folder that cannot be told"
        if target is not None:
            folders += [_expanded(target, folder, home) for folder in folders]
        if len(folders) > _MOST_FOLDERS:
            return folders[:_MOST_FOLDERS], "it goes to many folders"
    return folders, ""


def _candidates(word: str) -> Iterator[str]:
    """The word, and what follows `=`, `:` or a short option in it."""
    yield word
    if word.startswith("-") and not word.startswith("--") and len(word) > 2:
        yield word[2:]
    for sign in "=:":
        head, found, tail = word.partition(sign)
        if found and tail and head:
            yield tail


def _expanded(text: str, folder: Path, home: Path) -> Path:
    if text == "~" or text.startswith("~/"):
        return home / text[2:]
    return folder / text


def _paths(text: str, folder: Path, home: Path) -> tuple[list[Path], str]:
    if re.match(r"~[^/]", text):
        return [], "it names another home folder"
    if not _WILD.search(text):
        return [_expanded(text.translate(_SHOW), folder, home)], ""
    path = _expanded(text, folder, home)
    names = text.split("/")
    wild = [name for name in names if _WILD.search(name)]
    plain = Path(*_plain_parts(path))
    if any(name.startswith(".") for name in wild) or len(wild) > _MOST_WILD or ".." in names:
        return [plain], "its patterns may fit hidden or many files"
    if Path(text).is_absolute() or text.startswith("~"):
        return [plain], ""
    pattern = f"{glob.escape(str(folder))}/{text}"
    fitting = [Path(name) for name in islice(glob.iglob(pattern), _MOST_FILES + 1)]  # noqa: PTH207
    if len(fitting) > _MOST_FILES:
        return [plain], "its patterns may fit hidden or many files"
    return [plain, *fitting], ""


def _plain_parts(path: Path) -> list[str]:
    """The folders of a pattern before its first wildcard."""
    kept = []
    for part in path.parts:
        if _WILD.search(part):
            break
        kept.append(part)
    return kept


def _dynamic(hidden: str) -> str:
    if _VARIABLE.search(hidden):
        return "a word of it is only known when it runs"
    if _BRACES.search(hidden):
        return "braces in it make words that are not checked"
    return ""
