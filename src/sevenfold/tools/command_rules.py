"""Whether a shell command is meant by a rule such as `git status:*`, `npm test` or `npm run *`.

A rule that allows is compared word by word with one simple command, and with nothing else. A rule
that denies or asks also looks behind wrappers (`sudo`, `env`, `xargs`, `bash -c`), past options
(`git -C x push`) and, where the command cannot be taken apart, for its first word anywhere.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from sevenfold.tools.shell import parts
from sevenfold.tools.shell_options import names

_WRAPPERS: Final = names(
    """
    sudo doas su command builtin exec env nohup time nice ionice timeout stdbuf setsid xargs parallel
    watch find fd eval bash sh zsh dash ksh fish busybox chroot unshare nsenter strace ltrace script
    flock caffeinate chrt taskset runuser pkexec systemd-run entr ssh
    """
)
_DEEPEST: Final = 4
_TOKEN: Final = re.compile(r"[\w.+-]+")
_STAR: Final = re.compile(r"(?<!\\)\*")


parts_of = lru_cache(maxsize=256)(parts)


def words_of(text: str) -> list[str] | None:
    """The words of one simple command without quotes, or None if that cannot be told."""
    try:
        return shlex.split(text)
    except ValueError:
        return None


def exactly(command: str) -> str:
    """The text of a pattern that means this command alone."""
    return command.replace("\\", "\\\\").replace("*", "\\*")


def check(about: str) -> str | None:
    """What is wrong with a pattern; None: nothing."""
    plain = _plain(about.removesuffix(":*"))
    if not about.removesuffix(":*").strip(" *"):
        return "it names no program"
    if not _is_prefix(about):
        return None
    return None if words_of(plain) else "its quotes are not closed"


def allows(about: str, part: str) -> bool:
    """Whether the rule means this simple command, to the word."""
    return _fits(about, part, words_of(part), loose=False)


def allows_text(about: str, command: str) -> bool:
    """Whether the rule is this very command, letter by letter, whatever it contains."""
    return (
        not _is_prefix(about)
        and not _STAR.search(about)
        and _plain(about).strip() == command.strip()
    )


def holds(about: str, command: str, depth: int = 0) -> bool:
    """Whether anything in the command is, or might be, what the rule means."""
    found = parts_of(command)
    if found is None or depth > _DEEPEST:
        return _mentions(about, command)
    return any(_part_holds(about, part, depth) for part in found)


def _part_holds(about: str, part: str, depth: int) -> bool:
    words = words_of(part)
    if words is None or not words or not re.fullmatch(r"[\w./+:@%\[-]+", words[0]):
        return _mentions(about, part)  # the program is only known when it runs
    for behind in _behind_wrappers(words):
        if _fits(about, shlex.join(behind), behind, loose=True):
            return True
    nested = [word for word in words[1:] if re.search(r"\s", word)] if _wraps(words) else []
    return any(holds(about, word, depth + 1) for word in nested)


def _wraps(words: Sequence[str]) -> bool:
    return bool(words) and _name(words[0]) in _WRAPPERS


def _behind_wrappers(words: list[str]) -> Iterator[list[str]]:
    """The command itself, and whatever a wrapper at its front might run."""
    last = len(words) if _wraps(words) else 1
    for i in range(last):
        yield [_name(words[i]), *words[i + 1 :]]


def _name(program: str) -> str:
    return program.rpartition("/")[2] or program


def _mentions(about: str, text: str) -> bool:
    first = _name(_plain(about.removesuffix(":*")).split()[0])
    bare = text.translate(str.maketrans("", "", "\\'\""))
    return "$'" in text or "*" in first or first in _TOKEN.findall(bare)


def _fits(about: str, text: str, words: list[str] | None, *, loose: bool) -> bool:
    if _is_prefix(about):
        wanted = words_of(_plain(about.removesuffix(":*")))
        if not wanted or words is None:
            return False
        return _begins(words, wanted) if loose else words[: len(wanted)] == wanted
    if _STAR.search(about):
        return _wild(about).fullmatch(text) is not None
    return words is not None and words == words_of(_plain(about))


def _is_prefix(about: str) -> bool:
    return about.endswith(":*") and not about.endswith("\\:*")


def _begins(words: list[str], wanted: list[str]) -> bool:
    """The same with options between the wanted words passed over, each with one value at most."""
    at = {0} if words and words[0] == _name(wanted[0]) else set()
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
def _wild(about: str) -> re.Pattern[str]:
    """`*` fits anything; ` *` at the end also nothing, so that `npm run *` means `npm run` too."""
    tail = about.endswith(" *")
    pieces = _STAR.split(about.removesuffix(" *"))
    first, *rest = [re.escape(_plain(piece)) for piece in pieces]
    # Between two stars the first fit is as good as any; without this a rule could take for ever.
    middle = "".join(f"(?>.*?{piece})" for piece in rest[:-1])
    expression = first + middle + "".join(f".*{piece}" for piece in rest[-1:])
    return re.compile(expression + ("(?: .*)?" if tail else ""), re.DOTALL)


def _plain(text: str) -> str:
    return re.sub(r"\\([\\*])", r"\1", text)
