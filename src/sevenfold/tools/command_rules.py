"""Rules for shell commands, such as `git status:*`, `npm test` or `npm run *`; the files a command names.

A rule that allows is compared word by word with one simple command. A rule that denies or asks also looks
behind wrappers (`sudo`, `env`, `xargs`, `bash -c`), past options (`git -C x push`) and, if the command
cannot be parsed, for its first word anywhere.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.tools.shell import split_compound
from sevenfold.tools.shell_syntax import make_name_set
from sevenfold.tools.workspace import ResolvedPath, is_secret_file, normalise_path

_WRAPPERS: Final = make_name_set(
    """
    sudo doas su command builtin exec env nohup time nice ionice timeout stdbuf setsid xargs parallel
    watch find fd eval bash sh zsh dash ksh fish busybox chroot unshare nsenter strace ltrace script
    flock caffeinate chrt taskset runuser pkexec systemd-run entr ssh
    """
)
_DEEPEST: Final = 4
_TOKEN: Final = r"[\w.+-]+"
_STAR: Final = r"(?<!\\)\*"


parts_of = lru_cache(maxsize=256)(split_compound)


def split_command(text: str) -> list[str] | None:
    """The words of one simple command without quotes, or None if they are uncertain."""
    try:
        return shlex.split(text)
    except ValueError:
        return None


def make_exact_pattern(command: str) -> str:
    """A pattern that matches this command alone."""
    return command.replace("\\", "\\\\").replace("*", "\\*")


def check_pattern(about: str) -> str | None:
    """The error in a pattern; None: there is none."""
    plain = _unescape_stars(about.removesuffix(":*"))
    if not about.removesuffix(":*").strip(" *"):
        return "it names no program"
    if not _is_prefix(about):
        return None
    return None if split_command(plain) else "its quotes are not closed"


def is_command_allowed(about: str, part: str) -> bool:
    """True if the rule matches this simple command, word by word."""
    return _is_match(about, part, split_command(part), loose=False)


def is_exact_command(about: str, command: str) -> bool:
    """True if the rule is this very command, letter by letter."""
    return (
        not _is_prefix(about)
        and not re.search(_STAR, about)
        and _unescape_stars(about).strip() == command.strip()
    )


def can_contain(about: str, command: str, depth: int = 0) -> bool:
    """True if anything in the command matches the rule, or might."""
    found = parts_of(command)
    if found is None or depth > _DEEPEST:
        return _can_mention(about, command)
    return any(_can_part_contain(about, part, depth) for part in found)


def _can_part_contain(about: str, part: str, depth: int) -> bool:
    words = split_command(part)
    if words is None or not words or not re.fullmatch(r"[\w./+:@%\[-]+", words[0]):
        return _can_mention(about, part)  # the program is only known when it runs
    for behind in _behind_wrappers(words):
        if _is_match(about, shlex.join(behind), behind, loose=True):
            return True
    nested = [word for word in words[1:] if re.search(r"\s", word)] if _is_wrapper(words) else []
    return any(can_contain(about, word, depth + 1) for word in nested)


def _is_wrapper(words: Sequence[str]) -> bool:
    return bool(words) and _strip_folder(words[0]) in _WRAPPERS


def _behind_wrappers(words: list[str]) -> Iterator[list[str]]:
    """The command itself, and each command that a wrapper at its front might run."""
    last = len(words) if _is_wrapper(words) else 1
    for i in range(last):
        yield [_strip_folder(words[i]), *words[i + 1 :]]


def _strip_folder(program: str) -> str:
    return program.rpartition("/")[2] or program


def _can_mention(about: str, text: str) -> bool:
    first = _strip_folder(_unescape_stars(about.removesuffix(":*")).split()[0])
    bare = text.translate(str.maketrans("", "", "\\'\""))
    return "$'" in text or "*" in first or first in re.findall(_TOKEN, bare)


def _is_match(about: str, text: str, words: list[str] | None, *, loose: bool) -> bool:
    if _is_prefix(about):
        wanted = split_command(_unescape_stars(about.removesuffix(":*")))
        if not wanted or words is None:
            return False
        return _is_loose_prefix(words, wanted) if loose else words[: len(wanted)] == wanted
    if re.search(_STAR, about):
        return _compile_wildcard(about).fullmatch(text) is not None
    return words is not None and words == split_command(_unescape_stars(about))


def _is_prefix(about: str) -> bool:
    return about.endswith(":*") and not about.endswith("\\:*")


def _is_loose_prefix(words: list[str], wanted: list[str]) -> bool:
    """True if the words begin with the wanted ones; options between them are skipped, with a value each."""
    at = {0} if words and words[0] == _strip_folder(wanted[0]) else set()
    for word in wanted[1:]:
        near, at = {i + 1 for i in at}, set()
        while near:
            i = near.pop()
            if i < len(words) and words[i] == word:
                at.add(i)
            elif i < len(words) and words[i].startswith("-"):
                near |= {i + 1, i + 2}
    return bool(at)


@lru_cache(maxsize=1024)
def _compile_wildcard(about: str) -> re.Pattern[str]:
    """The rule as an expression: `*` matches anything; ` *` at the end also nothing."""
    tail = about.endswith(" *")
    pieces = re.split(_STAR, about.removesuffix(" *"))
    first, *rest = [re.escape(_unescape_stars(piece)) for piece in pieces]
    # Atomic groups: the first match between two stars is as good as any; backtracking could take for ever.
    middle = "".join(f"(?>.*?{piece})" for piece in rest[:-1])
    expression = first + middle + "".join(f".*{piece}" for piece in rest[-1:])
    return re.compile(expression + ("(?: .*)?" if tail else ""), re.DOTALL)


def _unescape_stars(text: str) -> str:
    return re.sub(r"\\([\\*])", r"\1", text)


_STREAMS: Final = frozenset(
    map(Path, ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty"))
)
_MOST_FILES: Final = 1_000
_MOST_WILD: Final = 2
_MOST_FOLDERS: Final = 8
_WILD: Final = r"[*?\[]"
# Signs that mean nothing inside quotes are swapped for others while the command is parsed.
_QUOTED: Final = r"""(?s)'[^']*'|\\.|"(?:[^"\\]|\\.)*\""""
_ESCAPED: Final = r"(?s)\\."
_SIGNS: Final = "*?[{}$`"
_STAND_INS: Final = "".join(map(chr, range(0xE000, 0xE000 + len(_SIGNS))))
_HIDE: Final = str.maketrans(_SIGNS, _STAND_INS)
_HIDE_SOME: Final = str.maketrans(_SIGNS[:5], _STAND_INS[:5])
_SHOW: Final = str.maketrans(_STAND_INS, _SIGNS)
_VARIABLE: Final = r"`|\$(?!HOME\b|PWD\b|\?)[\w{(@*#!$'\"-]"
# Braces that bash leaves alone: neither a comma nor `..` inside.
_IDLE_BRACES: Final = r"\{(?:(?!\.\.)[^{},])*\}"
# Options that take no value: with others it is not certain which word is a folder.
_ALONE: Final = {
    "grep": re.compile(r"-[EFGHILPRchilnorsvwxz]+|--[\w-]+=.*"),
    "rg": re.compile(r"-[FHINPSUacilnosvwx]+|--[\w-]+=.*"),
}
_GREPS: Final = frozenset({"grep", "egrep", "fgrep"})
_RECURSIVE: Final = re.compile(r"-\w*[rRd]\w*|--[rd].*")
_MOST_BELOW: Final = 5_000
_MOVES: Final = frozenset({"pushd", "popd"})
_RUNNERS: Final = frozenset({"timeout", "xargs"})
# Options with which a program follows links, or reads the names of files from a file.
_SUM_CHECK: Final = r"-\w*c\w*|--c.*"
_FURTHER: Final[dict[str, str]] = {
    "ls": r"-\w*[HL]\w*|--de.*",
    "du": r"-\w*[DHL]\w*|--de.*|--f.*",
    **dict.fromkeys(("fd", "fdfind"), r"-\w*L\w*|--follow"),
    **dict.fromkeys(("cksum", "b2sum", "md5sum", "shasum"), _SUM_CHECK),
    **dict.fromkeys((f"sha{bits}sum" for bits in (1, 224, 256, 384, 512)), _SUM_CHECK),
    "find": r"-[HL]|-follow|-xtype",
    "strings": r"@.*",
    "tree": r"-\w*l\w*",
    "wc": r"--f.*",
}
# Here the system leads each process elsewhere: to its folder, its root, its open files.
_OWN_TO_PROCESS: Final = (
    r"/proc/[^/]+(?:/task/[^/]+)?/(?:cwd|root|fd|exe|map_files)|/dev/(?:fd|stdin|stdout|stderr)"
)
_MOST_LINKS: Final = 40


class CommandReach(msgspec.Struct, frozen=True):
    """The paths that a command names, and the reason why there may be others."""

    places: tuple[ResolvedPath, ...] = ()
    unclear: str = ""
    redirected: bool = False  # True if it reads input from a file, which a rule does not cover
    detour: bool = False  # True if a path leads where only the running command can tell


def find_reach(command: str, parts: Sequence[str] | None, cwd: Path, home: Path) -> CommandReach:
    """Every word that could be a path, relative to every folder in which the command may run."""
    # The parts have no comments and no line continuations.
    read = command.replace("\\\n", "") if parts is None else "\n".join(parts)
    hidden = re.sub(_QUOTED, _hide_signs, read)
    words = _lex_words(hidden)
    if words is None:
        return CommandReach(unclear="its quotes cannot be read", redirected=True)
    folders, unclear = _find_folders(parts or (), cwd, home)
    programs = {found[0] for part in parts or () if (found := split_command(part))}
    whole, here, doubt = _find_folder_reads(parts or ())
    unclear = unclear or doubt
    places = {path: ResolvedPath.of(path) for path in folders[1:]}
    detour = next(filter(None, map(find_detour, folders[1:])), "")
    for word in words:
        if word in programs and ("/" in word or word == "["):
            continue
        for folder in folders:
            for text in _list_candidates(_fill_variables(word, folder, home)):
                paths, doubt = _find_paths(text, folder, home)
                unclear = unclear or doubt
                detour = detour or next(filter(None, map(find_detour, paths)), "")
                places |= {path: ResolvedPath.of(path) for path in paths if _is_relevant(path, word)}
    if whole:
        below, doubt = _list_below(dict.fromkeys((*places, *(folders if here else ()))))
        unclear = unclear or doubt
        places |= {path: ResolvedPath.of(path) for path in below}
    redirected = "<" in re.sub(_QUOTED, "_", read)
    unclear = detour or unclear or _explain_dynamic(hidden, words)
    return CommandReach(tuple(places.values()), unclear, redirected, bool(detour))


def _is_relevant(path: Path, word: str) -> bool:
    """True if the path exists, or may be a secret file in an old revision (`HEAD:path`)."""
    return path not in _STREAMS and (os.path.lexists(path) or (":" in word and is_secret_file(path)))


def find_detour(path: Path) -> str:
    """The reason why a path may lead a command elsewhere than it leads us; empty: there is none."""
    if path in _STREAMS:
        return ""
    waiting, at, links = [*reversed(path.parts[1:])], Path("/"), 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            if not at.is_dir():
                return f"{path} cannot be resolved"
            at = at.parent
            continue
        at /= part
        if re.fullmatch(_OWN_TO_PROCESS, str(at)):
            return f"where {path} leads is only known when it runs"
        try:
            target = at.readlink()
        except OSError as error:
            # No link, or nothing there, as a pattern or a text that looks like a path: it goes no further.
            if error.errno in (errno.EINVAL, errno.ENAMETOOLONG) or (
                error.errno == errno.ENOENT and ".." not in waiting
            ):
                continue
            return f"{path} cannot be resolved"
        links += 1
        if links > _MOST_LINKS:
            return f"{path} cannot be resolved"
        at = Path("/") if target.is_absolute() else at.parent
        waiting += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    return ""


def list_programs(command: str) -> frozenset[str]:
    """The names of the programs that a command of plain parts runs."""
    found: set[str] = set()
    for part in parts_of(command) or ():
        words = split_command(part) or [""]
        found.add(_strip_folder(words[0]))
        if words[0] in _RUNNERS:
            found |= {word for word in words[1:] if "/" not in word}
    return frozenset(found)


def _hide_signs(quoted: re.Match[str]) -> str:
    text = quoted[0]
    if text[0] != '"':
        return text.translate(_HIDE)
    return re.sub(_ESCAPED, lambda escape: escape[0].translate(_HIDE), text.translate(_HIDE_SOME))


def parse_cd(part: str) -> str | None:
    """The folder that a plain `cd` goes to; None: it is something else."""
    words = split_command(part)
    if not words or words[0] != "cd" or len(words) != 2 or words[1].startswith("-"):
        return None
    return words[1]


def _lex_words(command: str) -> list[str] | None:
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:
        return None


def _fill_variables(word: str, cwd: Path, home: Path) -> str:
    for name, value in (("HOME", home), ("PWD", cwd)):
        word = word.replace(f"${{{name}}}", str(value)).replace(f"${name}", str(value))
    return word


def _find_folders(parts: Sequence[str], cwd: Path, home: Path) -> tuple[list[Path], str]:
    folders = [cwd]
    for part in parts:
        words = split_command(part) or [""]
        target = parse_cd(part)
        if words[0] in _MOVES or (words[0] == "cd" and target is None):
            return folders, "it goes to a folder that cannot be told"
        if target is not None:
            # bash reads `link/..` literally, the system follows the link
            reached = [_expand_home(target, folder, home) for folder in folders]
            folders = list(dict.fromkeys((*folders, *reached, *map(normalise_path, reached))))
        if len(folders) > _MOST_FOLDERS:
            return folders[:_MOST_FOLDERS], "it goes to many folders"
    return folders, ""


def _list_candidates(word: str) -> Iterator[str]:
    """The word, and the parts of it after `=`, `:` or a short option."""
    yield word
    if word.startswith("-") and not word.startswith("--"):
        yield from (word[at:] for at in range(2, len(word)))  # `-bfFILE` is `-b -f FILE`
    yield from (word[at + 1 :] for at, sign in enumerate(word[:-1]) if sign in "=:")


def _expand_home(text: str, folder: Path, home: Path) -> Path:
    if text == "~" or text.startswith("~/"):
        return home / text[2:]
    return folder / text


def _find_paths(text: str, folder: Path, home: Path) -> tuple[list[Path], str]:
    if re.match(r"~[^/]", text):
        return [], "it names another home folder"
    if not re.search(_WILD, text):
        return [_expand_home(text.translate(_SHOW), folder, home)], ""
    path = _expand_home(text, folder, home)
    names = text.split("/")
    wild = [name for name in names if re.search(_WILD, name)]
    plain = Path(*_plain_parts(path))
    strange = any(name.startswith(".") or "[" in name for name in wild)  # bash reads `[^a]` otherwise
    if strange or len(wild) > _MOST_WILD or ".." in names:
        return [plain], "its patterns may fit hidden or many files"
    start = home if text.startswith("~") else folder
    pattern = f"{glob.escape(str(start))}/{text.removeprefix('~/')}"
    if Path(text).is_absolute():
        pattern = text
    fitting = [Path(name) for name in islice(glob.iglob(pattern), _MOST_FILES + 1)]  # noqa: PTH207
    if len(fitting) > _MOST_FILES:
        return [plain], "its patterns may fit hidden or many files"
    return [plain, *fitting], ""


def _plain_parts(path: Path) -> list[str]:
    """The folders of a pattern before its first wildcard."""
    kept = []
    for part in path.parts:
        if re.search(_WILD, part):
            break
        kept.append(part)
    return kept


def _find_folder_reads(parts: Sequence[str]) -> tuple[bool, bool, str]:
    """True if whole folders are read, True if the working folder may be one, and what is unclear."""
    whole, here, unclear = False, False, ""
    for part in parts:
        words = split_command(part) or [""]
        while Path(words[0]).name == "timeout" and len(words) > 2:
            words = words[2:]
        program = Path(words[0]).name
        options = [word for word in words[1:] if word.startswith("-") and word != "-"]
        if program == "xargs":
            return True, True, "which files xargs hands on is only known when it runs"
        if program in _FURTHER and any(re.fullmatch(_FURTHER[program], word) for word in words[1:]):
            unclear = "it may read what links or a list of names lead to"
        if program == "diff":
            whole = True
        elif (
            program == "rg"
            or (program in _GREPS and any(map(_RECURSIVE.fullmatch, options)))
            or (program == "git" and {"--no-index", "--untracked"} & set(options))
        ):
            alone = all(map(_ALONE["rg" if program == "rg" else "grep"].fullmatch, options))
            whole, here = True, here or not alone or len(words) - len(options) < 3
    return whole, here, unclear


def _list_below(folders: Iterable[Path]) -> tuple[list[Path], str]:
    found: list[Path] = []
    for folder in folders:
        for at, inner, files in os.walk(folder):
            inner[:] = [name for name in inner if name != ".git"]
            found += [Path(at, name) for name in (*inner, *files)]
            if len(found) > _MOST_BELOW:
                return found[:_MOST_BELOW], "it searches many files; Grep leaves out what is secret"
    return found, ""


def _explain_dynamic(hidden: str, words: Sequence[str]) -> str:
    if re.search(_VARIABLE, hidden):
        return "a word of it is only known when it runs"
    if any("{" in re.sub(_IDLE_BRACES, "", word) for word in words):
        return "braces in it make words that are not checked"
    return ""
