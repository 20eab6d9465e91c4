"""Runs the git program, so that nothing of a repository can make it run anything else.

No hooks, no prompts, no submodules, no helpers that an address names; only our own bare repository,
never a working folder. What it prints goes to files of a limited size, and it has a limited time. Each
command is a process group of its own: it can be ended as a whole, also by the next run when ours died.

What git says when something fails, as one sentence that people can act on. Where a team's
repository is: which addresses are accepted, and how one is shown to people. What a sync did and how
a team memory stands, as values; and the ways in which it cannot be had.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, Literal, TypeAlias
from urllib.parse import unquote

import msgspec

from sevenfold.core.errors import Failure, Mistake, Refused
from sevenfold.memory.guard.secrets import find_secrets
from sevenfold.storage.files import make_private_dir, make_storage_failure

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


class RemoteAddress(msgspec.Struct, frozen=True):
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
        return shown if not find_secrets(shown) else hide_secrets(shown)

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


def parse_address(text: str, start: Path) -> RemoteAddress:
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
        return RemoteAddress(given)
    return _by_path(given, start)


def _by_path(given: str, start: Path) -> RemoteAddress:
    place = start / Path(given).expanduser()
    if _BARE_HOST.fullmatch(given) and not (start / given.partition("/")[0]).exists():
        host, _, rest = given.partition("/")
        raise Mistake(
            f"{hide_secrets(given)} looks like an address on the network: write "
            f"https://{hide_secrets(given)} or "
            f"git@{host}:{hide_secrets(rest)}, or ./{hide_secrets(given)} if it is a folder"
        )
    path = os.path.normpath(place)
    return RemoteAddress(path, path)


def _by_url(given: str, match: re.Match[str]) -> RemoteAddress:
    scheme, host, path = match[1].lower(), match[2], match[3]
    if scheme not in SCHEMES:
        raise Refused(f"{scheme}:// is refused as a repository: use a path or {', '.join(SCHEMES)}")
    if scheme == "file":
        if host not in ("", "localhost") or not path.startswith("/"):
            raise Mistake("the address of a folder is file:///absolute/path, or the path alone")
        return RemoteAddress(given, os.path.normpath(unquote(path)))
    _check_host(host)
    if not host.rpartition("@")[2]:
        raise Mistake(f"{RemoteAddress(given).shown} names no host")
    return RemoteAddress(given)


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


def strip_credentials(text: str) -> str:
    """A text in which addresses may stand, without names and passwords in them."""
    shown = _QUERY.sub("", _CREDENTIALS.sub(_kept_user, text)) if "://" in text else text
    return shown if not find_secrets(shown) else hide_secrets(shown)


def _kept_user(match: re.Match[str]) -> str:
    """`git@` says nothing secret; anything else might."""
    return match[0] if match[0] == "git@" else ""


def hide_secrets(text: str) -> str:
    """A text without the words in it that look like secrets."""
    words = re.split(r"(\s+|/)", text)
    shown = "".join("[hidden]" if word.strip("/ ") and find_secrets(word) else word for word in words)
    return shown if not find_secrets(shown) else "[hidden]"


Side: TypeAlias = Literal["here", "remote"]
SHOWN: Final = 50
"""Refusals that are named one by one; the others are counted."""
_LONG: Final = 120


class NoTeam(Mistake, kind="no_team"):
    """This memory is not shared with a team."""

    def __init__(self) -> None:
        super().__init__(
            "this memory is not shared with a team: 'sevenfold team init REMOTE' begins one and "
            "'sevenfold team join REMOTE' joins one"
        )


class GitFailed(Failure, kind="git_failed"):
    """Git, or the repository that it was sent to, said no: one sentence, without any credential."""

    said = ""
    """What git itself printed, for us to recognise; not for people."""


class Behind(GitFailed, kind="behind"):
    """Somebody else pushed meanwhile: fetch, merge and push again."""


class RefusedFile(msgspec.Struct, frozen=True):
    """A file that did not go the way of the others, and why. It stays where it is."""

    file: str
    why: str
    side: Side
    """`here`: it was not sent; `remote`: it was not taken."""


class SyncResult(msgspec.Struct, frozen=True):
    """What one sync did. The files are named as in the folder of the team."""

    pulled: tuple[str, ...] = ()
    """Files that have the team's text now."""
    pushed: tuple[str, ...] = ()
    """Files whose text was sent."""
    conflicts: tuple[str, ...] = ()
    """Copies that were made because both sides changed the same lines."""
    refused: tuple[RefusedFile, ...] = ()
    more_refused: int = 0
    """Refusals beyond those that are named."""
    offline: str | None = None
    """Why what is here could not be sent, or what is there not be had; None when all went well."""
    note: str = ""
    """Something to know about it: a repository that was made, a folder that was brought back."""
    removed_here: tuple[str, ...] = ()
    """Files that the team removed, and that went here too."""
    removed_there: tuple[str, ...] = ()
    """Files that were removed here, and went for the team too."""
    fresh: tuple[RefusedFile, ...] = ()
    """Those refusals that the sync before did not name."""

    @property
    def left_out(self) -> int:
        return len(self.refused) + self.more_refused


class LastSync(msgspec.Struct, frozen=True):
    """How the last sync went, and when one went well."""

    synced: float | None = None
    offline: str | None = None


class TeamStatus(msgspec.Struct, frozen=True):
    """How a team memory stands."""

    remote: str
    branch: str
    ahead: tuple[str, ...] = ()
    """Files that changed here and were not sent yet."""
    behind: tuple[str, ...] = ()
    """Files that changed there and were not taken yet."""
    conflicts: tuple[str, ...] = ()
    """Copies that wait for somebody to put them together with their original."""
    refused: tuple[RefusedFile, ...] = ()
    more_refused: int = 0
    synced: float | None = None
    offline: str | None = None


def limit_refusals(refused: list[RefusedFile]) -> tuple[tuple[RefusedFile, ...], int]:
    """The refusals that are named, those of files that are here first, and how many there are more."""
    first: dict[tuple[str, str], RefusedFile] = {}
    for one in refused:
        first.setdefault((one.side, one.file), one)
    ordered = [first[key] for key in sorted(first)]
    named = tuple(RefusedFile(format_foreign_name(one.file), one.why, one.side) for one in ordered[:SHOWN])
    return named, max(0, len(ordered) - SHOWN)


def format_foreign_name(file: str) -> str:
    """A name that somebody else chose: short, plain, and without a secret in it."""
    plain = "".join(c if c.isprintable() else "?" for c in file)
    return hide_secrets(plain if len(plain) <= _LONG else f"{plain[:_LONG]}…")


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


def make_git_error(said: str, remote: RemoteAddress, *, pushing: bool = False) -> GitFailed:
    """The error for what git said about a repository."""
    error = _understood(remote.hide(said), remote.shown, pushing)
    error.said = said
    return error


def find_blocking_lock(said: str) -> str:
    """The lock file because of which git did not go on; empty when there is none."""
    match = _LOCK.search(said)
    return match[1].replace("/./", "/") if match else ""


def _understood(said: str, shown: str, pushing: bool) -> GitFailed:
    if pushing and (lock := find_blocking_lock(said)):
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
    lines = [line.removeprefix("remote:").strip() for line in said.splitlines() if "remote:" in line]
    return _told(next(filter(None, lines), ""))


def _told(text: str) -> str:
    """Somebody else's words: short, on one line, with nothing in them that moves a cursor."""
    plain = "".join(c if c.isprintable() else " " for c in strip_credentials(text))
    short = " ".join(plain.split())
    return short if len(short) <= _WORDS else f"{short[:_WORDS]}…"


LOCAL: Final = 30.0
"""Seconds for a command that stays on this machine."""
FAR: Final = 90.0
"""Seconds for one that talks to the remote."""
LARGEST: Final = 512 << 20
"""Bytes of the largest file that git may write: what a remote sends is not ours to trust."""
OUTPUT: Final = 256 << 20
_SAID: Final = 20_000
_RUNNING: Final = "running"
_PATIENCE: Final = 2.0
_WAIT: Final = 0.1
_OPTIONS: Final = tuple(
    word
    for setting in (
        f"core.hooksPath={os.devnull}",
        "core.fsmonitor=false",
        "core.bigFileThreshold=1m",
        "protocol.ext.allow=never",
        "fetch.unpackLimit=1",
        "fetch.fsckObjects=false",
        "transfer.fsckObjects=false",
        "fetch.recurseSubmodules=false",
        "submodule.recurse=false",
        "push.gpgSign=false",
        "push.recurseSubmodules=no",
        "gc.auto=0",
        "maintenance.auto=false",
        "credential.interactive=false",
        "http.lowSpeedLimit=1",
        "http.lowSpeedTime=30",
    )
    for word in ("-c", setting)
)
_PRIVATE: Final = ("-c", "core.sharedRepository=0600")
"""Our own repository is for this user alone, whatever the umask. A remote does not hear of it."""
_KEPT: Final = frozenset(
    [
        "GIT_ASKPASS",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_SYSTEM",
        "GIT_EXEC_PATH",
        "GIT_PROXY_COMMAND",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_SSH_VARIANT",
    ]
)
_SET: Final = {
    "LC_ALL": "C",
    "LANGUAGE": "",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ATTR_NOSYSTEM": "1",
    "GCM_INTERACTIVE": "never",
    "SSH_ASKPASS_REQUIRE": "never",
}
_SHELL: Final = Path("/bin/sh")
_LIMITED: Final = 'ulimit -f "$0" 2>/dev/null; echo $$ >"$1"; shift; exec "$@"'
"""Said to `sh`, because a limit that Python sets between fork and exec is not safe with threads. It also
writes down the number of the process itself: there is no moment at which it runs and nobody knows."""
_AGAIN: Final = 5


class TeamGit:
    """The git program on one bare repository. `folder` is for its output and for what is running."""

    def __init__(
        self, repository: Path, folder: Path, environment: Mapping[str, str], *, largest: int = LARGEST
    ) -> None:
        self.repository, self._folder, self._largest = repository, folder, largest
        self._environment = _environment(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._stop = threading.Event()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def go_on(self) -> None:
        """`GitFailed` when it was stopped: for work between two commands that may take long."""
        if self.stopped:
            raise GitFailed("the sync was stopped")

    def pause(self, seconds: float) -> None:
        """Wait, but not when it is stopped."""
        self._stop.wait(seconds)
        self.go_on()

    def far(self, remote: RemoteAddress, *words: str, pushing: bool = False) -> bytes:
        """A command that talks to the remote."""
        for _ in range(_AGAIN):
            try:
                return self._run(words, b"", FAR, remote, pushing)
            except GitFailed as error:
                lock = find_blocking_lock(error.said)
                if self.stopped or not lock.startswith(str(self.repository)):
                    raise
            time.sleep(_WAIT)  # what a run that died had started just then shows itself late
            self.recover()
        return self._run(words, b"", FAR, remote, pushing)

    def local(self, *words: str, given: bytes = b"") -> bytes:
        """A command that stays on this machine; `given` is what it reads."""
        return self._run(words, given, LOCAL, RemoteAddress(str(self.repository)), False)

    def stop(self) -> None:
        """End what is running, from another thread; nothing more is begun."""
        self._stop.set()
        process = self._process
        if process is not None:
            _end(process)

    def recover(self) -> None:
        """End what a run that died left running, and clear what it left half done."""
        record = self._folder / _RUNNING
        with contextlib.suppress(OSError, ValueError):
            self._bury(int(record.read_text("ascii")))
            record.unlink()
        for pattern in ("*.lock", "refs/**/*.lock", "objects/pack/tmp_*", "objects/tmp_*"):
            for left in self.repository.glob(pattern):
                with contextlib.suppress(OSError):
                    left.unlink()

    def _run(
        self, words: tuple[str, ...], given: bytes, seconds: float, remote: RemoteAddress, pushing: bool
    ) -> bytes:
        make_private_dir(self._folder)
        with (
            tempfile.TemporaryFile(dir=self._folder) as asked,
            tempfile.TemporaryFile(dir=self._folder) as out,
            tempfile.TemporaryFile(dir=self._folder) as err,
        ):
            asked.write(given)
            asked.seek(0)
            code = self._ended(self._command(words, seconds), (asked, out, err), seconds, remote.shown)
            if code == 0:
                return _read(out, OUTPUT)
            said = f"{_read(out, _SAID).decode('utf-8', 'replace') if pushing else ''}\n"
            raise make_git_error(
                said + _read(err, _SAID).decode("utf-8", "replace"), remote, pushing=pushing
            )

    def _command(self, words: tuple[str, ...], seconds: float) -> list[str]:
        program = shutil.which("git", path=self._environment.get("PATH", os.defpath))
        if program is None:
            raise Mistake("git was not found; team memory needs it: install git")
        own = () if words[:1] == ("init",) else _PRIVATE  # what is made for the team is the team's
        command = [program, *_OPTIONS, *own, f"--git-dir={self.repository}", *words]
        if not _SHELL.exists():  # Windows
            return command
        record = str(self._folder / _RUNNING) if seconds > LOCAL else os.devnull
        return [str(_SHELL), "-c", _LIMITED, str(self._largest >> 9), record, *command]

    def _ended(self, command: list[str], streams: tuple[IO[bytes], ...], seconds: float, shown: str) -> int:
        if self.stopped:
            raise GitFailed(f"{shown}: the sync was stopped")
        try:
            process = subprocess.Popen(
                command,
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                env=self._environment,
                cwd=self._folder,
                start_new_session=True,
            )
        except OSError as error:
            raise make_storage_failure(error, command[0], "run") from error
        self._process = process
        try:
            with _ending(process, seconds) as late:
                code = process.wait()
            if late.is_set():
                raise GitFailed(f"{shown} did not answer within {seconds:.0f} seconds")
            if self.stopped and code < 0:
                raise GitFailed(f"{shown}: the sync was stopped")
            return code
        finally:
            self._process = None
            if process.poll() is None:
                _end(process)
                process.wait()
            if seconds > LOCAL:
                with contextlib.suppress(OSError):
                    (self._folder / _RUNNING).unlink()

    def _bury(self, pid: int) -> None:
        """End a git that outlived the process which started it, and wait until it is gone."""
        began = time.monotonic()
        while self._is_ours(pid) and (passed := time.monotonic() - began) < 2 * _PATIENCE:
            os.killpg(pid, signal.SIGTERM if passed < _PATIENCE else signal.SIGKILL)
            time.sleep(0.01)

    def _is_ours(self, pid: int) -> bool:
        """Whether the process of this number is a git on our repository: numbers are given out again."""
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return os.fsencode(f"--git-dir={self.repository}") in words


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in variables.items()
        if not name.startswith("GIT_") or name in _KEPT or name.startswith(("GIT_SSL", "GIT_HTTP"))
    }
    return {**kept, **_SET}


def _read(file: IO[bytes], limit: int) -> bytes:
    file.seek(0)
    data = file.read(limit + 1)
    if len(data) > limit:
        if limit == _SAID:
            return data[:limit]
        raise GitFailed("git said more than is read; the repository is too large for a team memory")
    return data


@contextmanager
def _ending(process: subprocess.Popen[bytes], seconds: float) -> Iterator[threading.Event]:
    """Ends it when its time is over. To wait with a limit would mean to look again and again."""
    late = threading.Event()

    def end() -> None:
        late.set()
        _end(process)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, so that it takes its lock files away, also those in a remote on this machine; when it
    does not, make it."""
    _send(process, signal.SIGTERM)
    timer = threading.Timer(_PATIENCE, _send, (process, getattr(signal, "SIGKILL", 9)))
    timer.daemon = True
    timer.start()


def _send(process: subprocess.Popen[bytes], number: int) -> None:
    if process.poll() is None:
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, number)
            else:
                process.kill()
