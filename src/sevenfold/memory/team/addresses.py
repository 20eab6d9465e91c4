"""Where a team's repository is: which addresses are accepted, and how one is shown to people.

An address can make git run a program (`ext::…`) or look like an option (`-…`): those are refused. One
with a password in it works, but is never shown with it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import msgspec

from sevenfold.errors import Mistake, Refused
from sevenfold.memory.guard.secrets import find_secrets

SCHEMES: Final = ("file", "ssh", "git+ssh", "ssh+git", "https", "http", "git")
LONGEST: Final = 2_000
_HELPER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.\-]*::")
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://([^/?#]*)([^?#]*)")
_SCP: Final = re.compile(r"([^/\\:\[]*|[^/\\:]*\[[^/\\\]]*\]):(.*)", re.DOTALL)
_DRIVE: Final = re.compile(r"[A-Za-z]:[\\/]")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:@\[\]]*)(:\d*)?")
_BARE_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9\-]*(\.[A-Za-z0-9\-]+)+/[^/].*")
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/\s]*@")
_QUERY: Final = re.compile(r"(?<=[^\s])[?#][^\s'\"]*")
_SHORT: Final = 4
"""A part of an address that is shorter is not looked for in other words: it would be everywhere."""


class Address(msgspec.Struct, frozen=True):
    """A remote repository."""

    given: str
    """What git is told."""
    path: str = ""
    """The folder, where it is on this machine."""

    @property
    def shown(self) -> str:
        """Without names, passwords, query and fragment."""
        if match := _URL.match(self.given):
            shown = _shown_url(match)
        elif self.path or self.given.startswith(("/", "\\")) or _DRIVE.match(self.given):
            shown = self.given
        else:
            shown = _shown_scp(self.given)
        return shown if not find_secrets(shown) else hidden(shown)

    def hide(self, text: str) -> str:
        """Words of git in which this address, or what is secret in it, may stand."""
        text = text.replace(self.given, self.shown)
        user = _user(self.given)
        if user and user != "git":
            for whole in {user, unquote(user)}:
                text = text.replace(f"{whole}@", "")
            for part in {user, *user.split(":", 1)[1:]}:
                for one in {part, unquote(part)}:
                    text = text.replace(one, "[hidden]") if len(one) >= _SHORT else text
        return text


def address_of(text: str, start: Path) -> Address:
    """The repository that is meant; relative paths count from `start`. `Refused` when it is dangerous."""
    given = text.strip()
    if not given or len(given) > LONGEST or not given.isprintable():
        raise Mistake("the address of the team's repository is empty, too long or no plain text")
    if given.startswith("-"):
        raise Refused("an address that begins with '-' is refused as a repository")
    if _HELPER.match(given):
        raise Refused(
            f"{given.partition('::')[0]}:: is refused as a repository: such an address runs a program; "
            f"use a path or {', '.join(SCHEMES[:4])}"
        )
    if match := _URL.match(given):
        return _by_url(match[1].lower() + given[len(match[1]) :], match)
    if (match := _SCP.fullmatch(given)) and not _DRIVE.match(given):
        _check_host(match[1])
        return Address(given)
    return _by_path(given, start)


def _by_path(given: str, start: Path) -> Address:
    place = start / Path(given).expanduser()
    if _BARE_HOST.fullmatch(given) and not (start / given.partition("/")[0]).exists():
        host, _, rest = given.partition("/")
        raise Mistake(
            f"{hidden(given)} looks like an address on the network: write https://{hidden(given)} or "
            f"git@{host}:{hidden(rest)}, or ./{hidden(given)} if it is a folder"
        )
    path = os.path.normpath(place)
    return Address(path, path)


def _by_url(given: str, match: re.Match[str]) -> Address:
    scheme, host, path = match[1].lower(), match[2], match[3]
    if scheme not in SCHEMES:
        raise Refused(f"{scheme}:// is refused as a repository: use a path or {', '.join(SCHEMES)}")
    if scheme == "file":
        if host not in ("", "localhost") or not path.startswith("/"):
            raise Mistake("the address of a folder is file:///absolute/path, or the path alone")
        return Address(given, os.path.normpath(unquote(path)))
    _check_host(host)
    if not host.rpartition("@")[2]:
        raise Mistake(f"{Address(given).shown} names no host")
    return Address(given)


def _check_host(host: str) -> None:
    """The name of a host, or of a user there, ends up as a word of a command: it must be no option."""
    if any(part.startswith("-") for part in host.split("@")):
        raise Refused("the address is refused: neither a host nor a user there begins with '-'")


# --- what is shown ----------------------------------------------------------------------------------------


def _shown_url(match: re.Match[str]) -> str:
    scheme, authority, path = match[1].lower(), match[2], match[3]
    user, _, host = authority.rpartition("@")
    if not _HOST.fullmatch(host):  # the rest of a password that was not encoded, perhaps
        return f"{scheme}://[hidden]"
    return f"{scheme}://{'git@' if user == 'git' else ''}{host}{path}"


def _shown_scp(given: str) -> str:
    """`user@host:path`: the user is no secret there, unless a password stands beside it."""
    front, slash, rest = given.partition("/")
    user, at, host = front.rpartition("@")
    kept = f"{user}@" if at and ":" not in user and "@" not in user else ""
    return re.split(r"[?#]", f"{kept}{host}{slash}{rest}", maxsplit=1)[0]


def _user(given: str) -> str:
    """What stands before the host: a name, a password, a token."""
    match = _URL.match(given)
    front = match[2] if match else given.partition("/")[0]
    user = front.rpartition("@")[0]
    return user if match or ":" in user or "@" in user else ""


def without_credentials(text: str) -> str:
    """A text in which addresses may stand, without names and passwords in them."""
    shown = _QUERY.sub("", _CREDENTIALS.sub(_kept_user, text)) if "://" in text else text
    return shown if not find_secrets(shown) else hidden(shown)


def _kept_user(match: re.Match[str]) -> str:
    """`git@` says nothing secret; anything else might."""
    return match[0] if match[0] == "git@" else ""


def hidden(text: str) -> str:
    """A text without the words in it that look like secrets."""
    words = re.split(r"(\s+|/)", text)
    shown = "".join(
        "[hidden]" if word.strip("/ ") and find_secrets(word) else word for word in words
    )
    return shown if not find_secrets(shown) else "[hidden]"
