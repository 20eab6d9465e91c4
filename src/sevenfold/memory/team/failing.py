"""What git says when something fails, as one sentence that people can act on."""

from __future__ import annotations

import re
from typing import Final

from sevenfold.memory.team.addresses import Address, without_credentials
from sevenfold.memory.team.values import Behind, GitFailed

_WORDS: Final = 200
"""Characters of git's own words that are told."""
_ABOUT: Final[tuple[tuple[str, str], ...]] = (
    (
        r"dubious ownership",
        "git does not open it, because it belongs to another user; "
        "'git config --global --add safe.directory PATH' allows it",
    ),
    (
        r"host key verification failed",
        "its host key is not known; connect to it with ssh once and accept the key",
    ),
    (
        r"authentication failed|could not read (username|password)|terminal prompts disabled"
        r"|permission denied \(|error: 40[13]|access denied|invalid credentials",
        "it refused access; set up the ssh key or the credentials with which git reaches it",
    ),
    (
        r"could not resolve host|name or service not known|temporary failure in name",
        "its host was not found; check the address, or the network",
    ),
    (
        r"connection (refused|timed out|reset)|network is unreachable|no route to host"
        r"|could not connect|failed to connect|operation timed out|couldn't connect"
        r"|unable to connect",
        "it cannot be reached; check the network",
    ),
    (
        r"does not appear to be a git repository|repository .*not found|not a git repository"
        r"|no such file or directory|error: 404|does not exist",
        "there is no git repository",
    ),
    (r"mismatched algorithms|object-format", "it uses another kind of object ids (SHA-256)"),
    (
        r"invalid index-pack output|file size limit exceeded|index-pack (died|failed)",
        "it sends more than a team memory can be, or what it sends is damaged",
    ),
    (r"no space left on device", "there is no space left on a disk"),
)
_BEHIND: Final = re.compile(
    r"\(fetch first\)|\(non-fast-forward\)|cannot lock ref|failed to update ref|failed to lock"
    r"|reference already exists|incorrect old value|\(stale info\)|but expected",
    re.IGNORECASE,
)
_LOCK: Final = re.compile(r"Unable to create '([^'\n]+\.lock)': File exists", re.IGNORECASE)
_REJECTED: Final = re.compile(r"remote rejected\]?.*?\(([^()\n]*)\)|rejected\]?.*?\(([^()\n]*)\)")
_LINE: Final = re.compile(r"^(?:fatal|error|remote: error|ssh): *(.+)$", re.MULTILINE)


def failed(said: str, remote: Address, *, pushing: bool = False) -> GitFailed:
    """The error for what git said about a repository."""
    error = _understood(remote.hide(said), remote.shown, pushing)
    error.said = said
    return error


def lock_in_the_way(said: str) -> str:
    """The lock file because of which git did not go on; empty when there is none."""
    match = _LOCK.search(said)
    return match[1].replace("/./", "/") if match else ""


def _understood(said: str, shown: str, pushing: bool) -> GitFailed:
    if pushing and (lock := lock_in_the_way(said)):
        return Behind(
            f"{shown} is locked by {_told(lock)}: if no git is at work there, one has died, and that file "
            "is to be removed"
        )
    if pushing and _BEHIND.search(said):
        return Behind(f"{shown} was changed by somebody else meanwhile")
    if pushing and (match := _REJECTED.search(said)):
        why = _told(match[1] or match[2] or "no reason given")
        more = _remark(said)
        return GitFailed(f"{shown} did not accept the push: {why}{f' ({more})' if more else ''}")
    for pattern, why in _ABOUT:
        if re.search(pattern, said, re.IGNORECASE):
            return GitFailed(f"{shown}: {why}")
    lines = _LINE.findall(said) or said.strip().splitlines()[-1:]
    return GitFailed(f"{shown}: git failed ({_told(lines[0] if lines else 'it said nothing')})")


def _remark(said: str) -> str:
    """What a hook on the other side printed, its first line."""
    lines = [
        line.removeprefix("remote:").strip() for line in said.splitlines() if "remote:" in line
    ]
    return _told(next(filter(None, lines), ""))


def _told(text: str) -> str:
    """Somebody else's words: short, on one line, with nothing in them that moves a cursor."""
    plain = "".join(c if c.isprintable() else " " for c in without_credentials(text))
    short = " ".join(plain.split())
    return short if len(short) <= _WORDS else f"{short[:_WORDS]}…"
