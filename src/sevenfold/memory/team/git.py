"""Git for team memory: addresses of remotes, errors in words, and the program on our bare repository.

Git never sees a working folder. Its output goes to files of a limited size, and it has a limited time. A
command that outlived a dead process is ended by the next run. The results of a sync are values here too.
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
from sevenfold.storage.git import GitProgram

SCHEMES: Final = ("file", "ssh", "git+ssh", "ssh+git", "https", "http", "git")
PLAIN: Final = ("http://", "git://")
LONGEST: Final = 2_000
_HELPER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.\-]*::")
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://([^/?#]*)([^?#]*)")
_SCP: Final = re.compile(r"([^/\\:\[]*|[^/\\:]*\[[^/\\\]]*\]):(.*)", re.DOTALL)
_DRIVE: Final = re.compile(r"[A-Za-z]:[\\/]")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:@\[\]]*)(:\d*)?")
_BARE_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9\-]*(\.[A-Za-z0-9\-]+)+/[^/].*")
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/\s]*@")
_QUERY: Final = re.compile(r"(?<=[^\s])[?#][^\s'\"]*")
_SHORT: Final = 4  # Shorter parts of an address are not searched for in other texts


class RemoteAddress(msgspec.Struct, frozen=True):
    """A remote repository."""

    given: str  # The address for git
    path: str = ""  # The folder, if it is on this machine

    @property
    def weakness(self) -> str:
        """The reason why this address is refused unless a setting allows it; empty: there is none."""
        scheme = next((scheme for scheme in PLAIN if self.given.startswith(scheme)), "")
        if not scheme:
            return ""
        return (
            f"{scheme} is refused as a team's repository: anybody on the way can read and change what is "
            "sent; use https:// or ssh://, or set teamPlainRemotes to true in your settings"
        )

    @property
    def shown(self) -> str:
        """The address without names, passwords, query and fragment."""
        shown = self.given
        if match := _URL.match(self.given):
            user, _, host = match[2].rpartition("@")
            place = f"{'git@' if user == 'git' else ''}{host}{match[3]}"
            # What is no host is perhaps the rest of a password that was not encoded.
            shown = f"{match[1].lower()}://{place if _HOST.fullmatch(host) else '[hidden]'}"
        elif not (self.path or self.given.startswith(("/", "\\")) or _DRIVE.match(self.given)):
            # `user@host:path`: the user is no secret, unless there is a password.
            front, slash, rest = self.given.partition("/")
            user, at, host = front.rpartition("@")
            kept = f"{user}@" if at and ":" not in user and "@" not in user else ""
            shown = re.split(r"[?#]", f"{kept}{host}{slash}{rest}", maxsplit=1)[0]
        return shown if not find_secrets(shown) else hide_secrets(shown)

    def hide(self, text: str) -> str:
        """A text of git without this address and the secrets in it."""
        text = text.replace(self.given, self.shown)
        match = _URL.match(self.given)
        # The part before the host: a name, a password, a token.
        user = (match[2] if match else self.given.partition("/")[0]).rpartition("@")[0]
        if user and user != "git" and (match or ":" in user or "@" in user):
            for whole in {user, unquote(user)}:
                text = text.replace(f"{whole}@", "")
            for part in {user, *user.split(":", 1)[1:]}:
                for one in {part, unquote(part)}:
                    text = text.replace(one, "[hidden]") if len(one) >= _SHORT else text
        return text


def parse_address(text: str, start: Path) -> RemoteAddress:
    """The address in a text; relative paths count from `start`. `Refused` if it is dangerous."""
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
    """Refuse a host or user that ssh would take for an option."""
    if any(part.startswith("-") for part in host.split("@")):
        raise Refused("the address is refused: neither a host nor a user there begins with '-'")


# --- what is shown ----------------------------------------------------------------------------------------


def strip_credentials(text: str) -> str:
    """A text without the names and passwords in its addresses."""
    shown = text
    if "://" in text:
        shown = _CREDENTIALS.sub(lambda user: user[0] if user[0] == "git@" else "", shown)
        shown = _QUERY.sub("", shown)
    return shown if not find_secrets(shown) else hide_secrets(shown)


def hide_secrets(text: str) -> str:
    """A text without the words that look like secrets."""
    words = re.split(r"(\s+|/)", text)
    shown = "".join("[hidden]" if word.strip("/ ") and find_secrets(word) else word for word in words)
    return shown if not find_secrets(shown) else "[hidden]"


Side: TypeAlias = Literal["here", "remote"]
SHOWN: Final = 50  # Refusals that are listed; the others are counted
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

    said = ""  # The output of git, for the program; not for people


class Behind(GitFailed, kind="behind"):
    """Somebody else pushed meanwhile: fetch, merge and push again."""


class RefusedFile(msgspec.Struct, frozen=True):
    """A file that was not sent or not taken, and why. It stays as it is."""

    file: str
    why: str
    side: Side  # `here`: it was not sent; `remote`: it was not taken


class SyncResult(msgspec.Struct, frozen=True):
    """The result of one sync. The files are named as in the folder of the team."""

    pulled: tuple[str, ...] = ()  # Files that got the team's text
    pushed: tuple[str, ...] = ()  # Files whose text was sent
    conflicts: tuple[str, ...] = ()  # Copies that were made because both sides changed the same lines
    refused: tuple[RefusedFile, ...] = ()
    more_refused: int = 0  # Number of refusals that are not listed
    offline: str | None = None  # The reason of a failure; None if all went well
    note: str = ""  # A remark for the user: a repository that was made, a folder that was restored
    removed_here: tuple[str, ...] = ()  # Files that the team removed, and that were removed here
    removed_there: tuple[str, ...] = ()  # Files that were removed here, and were removed for the team
    fresh: tuple[RefusedFile, ...] = ()  # Refusals that the previous sync did not have

    @property
    def left_out(self) -> int:
        return len(self.refused) + self.more_refused


class LastSync(msgspec.Struct, frozen=True):
    """The time of the last successful sync, and the reason if the last one failed."""

    synced: float | None = None
    offline: str | None = None


class TeamStatus(msgspec.Struct, frozen=True):
    """The state of a team memory."""

    remote: str
    branch: str
    ahead: tuple[str, ...] = ()  # Files that changed here and were not sent yet
    behind: tuple[str, ...] = ()  # Files that changed there and were not taken yet
    conflicts: tuple[str, ...] = ()  # Conflict copies that the user has to merge
    refused: tuple[RefusedFile, ...] = ()
    more_refused: int = 0
    synced: float | None = None
    offline: str | None = None


def limit_refusals(refused: list[RefusedFile]) -> tuple[tuple[RefusedFile, ...], int]:
    """The refusals to list, those of files here first, and the number of the others."""
    first: dict[tuple[str, str], RefusedFile] = {}
    for one in refused:
        first.setdefault((one.side, one.file), one)
    ordered = [first[key] for key in sorted(first)]
    named = tuple(RefusedFile(format_foreign_name(one.file), one.why, one.side) for one in ordered[:SHOWN])
    return named, max(0, len(ordered) - SHOWN)


def format_foreign_name(file: str) -> str:
    """A name from the remote: short, plain, and without secrets."""
    plain = "".join(c if c.isprintable() else "?" for c in file)
    return hide_secrets(plain if len(plain) <= _LONG else f"{plain[:_LONG]}…")


_WORDS: Final = 200  # Characters of git's output that are shown
_ABOUT: Final[tuple[tuple[str, str], ...]] = (
    (r"dubious ownership", "git does not open it, because it belongs to another user; "
     "'git config --global --add safe.directory PATH' allows it"),
    (r"host key verification failed",
     "its host key is not known; connect to it with ssh once and accept the key"),
    (r"authentication failed|could not read (username|password)|terminal prompts disabled"
     r"|permission denied \(|error: 40[13]|access denied|invalid credentials",
     "it refused access; set up the ssh key or the credentials with which git reaches it"),
    (r"could not resolve host|name or service not known|temporary failure in name",
     "its host was not found; check the address, or the network"),
    (r"connection (refused|timed out|reset)|network is unreachable|no route to host"
     r"|could not connect|failed to connect|operation timed out|couldn't connect|unable to connect",
     "it cannot be reached; check the network"),
    (r"does not appear to be a git repository|repository .*not found|not a git repository"
     r"|no such file or directory|error: 404|does not exist", "there is no git repository"),
    (r"mismatched algorithms|object-format", "it uses another kind of object ids (SHA-256)"),
    (r"invalid index-pack output|file size limit exceeded|index-pack (died|failed)",
     "it sends more than a team memory can be, or what it sends is damaged"),
    (r"no space left on device", "there is no space left on a disk"),
)  # fmt: skip
_BEHIND: Final = re.compile(
    r"\(fetch first\)|\(non-fast-forward\)|cannot lock ref|failed to update ref|failed to lock"
    r"|reference already exists|incorrect old value|\(stale info\)|but expected",
    re.IGNORECASE,
)
_LOCK: Final = re.compile(r"Unable to create '([^'\n]+\.lock)': File exists", re.IGNORECASE)
_REJECTED: Final = re.compile(r"remote rejected\]?.*?\(([^()\n]*)\)|rejected\]?.*?\(([^()\n]*)\)")
_LINE: Final = re.compile(r"^(?:fatal|error|remote: error|ssh): *(.+)$", re.MULTILINE)


def make_git_error(said: str, remote: RemoteAddress, *, pushing: bool = False) -> GitFailed:
    """The error for an output of git."""
    error = _understood(remote.hide(said), remote.shown, pushing)
    error.said = said
    return error


def find_blocking_lock(said: str) -> str:
    """The lock file that stopped git; empty if there is none."""
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
        # The first line that a hook of the remote printed says more.
        lines = [line.removeprefix("remote:").strip() for line in said.splitlines() if "remote:" in line]
        more = _told(next(filter(None, lines), ""))
        return GitFailed(f"{shown} did not accept the push: {why}{f' ({more})' if more else ''}")
    for pattern, why in _ABOUT:
        if re.search(pattern, said, re.IGNORECASE):
            return GitFailed(f"{shown}: {why}")
    lines = _LINE.findall(said) or said.strip().splitlines()[-1:]
    return GitFailed(f"{shown}: git failed ({_told(lines[0] if lines else 'it said nothing')})")


def _told(text: str) -> str:
    """A text of git: short, on one line, without control characters."""
    plain = "".join(c if c.isprintable() else " " for c in strip_credentials(text))
    short = " ".join(plain.split())
    return short if len(short) <= _WORDS else f"{short[:_WORDS]}…"


LOCAL: Final = 30.0  # Seconds for a command that stays on this machine
FAR: Final = 90.0  # Seconds for one that talks to the remote
LARGEST: Final = 512 << 20  # Bytes of the largest file that git may write: a remote is not trusted
OUTPUT: Final = 256 << 20
_SAID: Final = 20_000
_RUNNING: Final = "running"
_PATIENCE: Final = 2.0
_WAIT: Final = 0.1
_PRIVATE: Final = ("-c", "core.sharedRepository=0600")
"""Our own repository is for this user alone, whatever the umask."""
_SHELL: Final = Path("/bin/sh")
_LIMITED: Final = 'ulimit -f "$0" 2>/dev/null; echo $$ >"$1"; shift; exec "$@"'
"""A script for `sh`: Python cannot set a limit between fork and exec safely with threads. It also records
the process id before git runs."""
_AGAIN: Final = 5


class TeamGit:
    """Runs git on one bare repository. `folder` is for its output and the record of a running command."""

    def __init__(
        self,
        repository: Path,
        folder: Path,
        environment: Mapping[str, str],
        *,
        largest: int = LARGEST,
        plain: bool = False,
    ) -> None:
        """`plain`: remotes may be reached over http:// and git://."""
        self.repository, self._folder, self._largest = repository, folder, largest
        self.plain = plain
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._stop = threading.Event()

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def go_on(self) -> None:
        """`GitFailed` if it was stopped: to be called during long work between commands."""
        if self.stopped:
            raise GitFailed("the sync was stopped")

    def pause(self, seconds: float) -> None:
        """Wait, unless it is stopped."""
        self._stop.wait(seconds)
        self.go_on()

    def far(self, remote: RemoteAddress, *words: str, pushing: bool = False) -> bytes:
        """Run a command that talks to the remote."""
        if remote.weakness and not self.plain:
            raise GitFailed(remote.weakness)
        for _ in range(_AGAIN):
            try:
                return self._run(words, b"", FAR, remote, pushing)
            except GitFailed as error:
                lock = find_blocking_lock(error.said)
                if self.stopped or not lock.startswith(str(self.repository)):
                    raise
            time.sleep(_WAIT)  # a command of a dead process may appear late
            self.recover()
        return self._run(words, b"", FAR, remote, pushing)

    def local(self, *words: str, given: bytes = b"") -> bytes:
        """Run a command that stays on this machine; `given` is its input."""
        return self._run(words, given, LOCAL, RemoteAddress(str(self.repository)), False)

    def stop(self) -> None:
        """End the running command, from another thread; no other is started."""
        self._stop.set()
        if (process := self._process) is not None:
            _end(process)

    def recover(self) -> None:
        """End the command of a dead process, and remove its locks and temporary files."""
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
            code = self._ended(words, (asked, out, err), seconds, remote.shown)
            if code == 0:
                return _read(out, OUTPUT)
            said = (_read(out, _SAID) if pushing else b"") + b"\n" + _read(err, _SAID)
            raise make_git_error(said.decode("utf-8", "replace"), remote, pushing=pushing)

    def _start(
        self, words: tuple[str, ...], streams: tuple[IO[bytes], ...], seconds: float
    ) -> subprocess.Popen[bytes]:
        own = () if words[:1] == ("init",) else _PRIVATE  # `init` makes the team's repository
        record = str(self._folder / _RUNNING) if seconds > LOCAL else os.devnull
        limited = (str(_SHELL), "-c", _LIMITED, str(self._largest >> 9), record)
        path = shutil.which("git", path=self._environment.get("PATH", os.defpath))
        if path is None:
            raise Mistake("git was not found; team memory needs it: install git")
        return GitProgram(path, self._environment, plain=self.plain).start(
            [*own, f"--git-dir={self.repository}", *words],
            self._folder,
            streams,
            within=limited if _SHELL.exists() else (),  # Windows has none
        )

    def _ended(
        self, words: tuple[str, ...], streams: tuple[IO[bytes], ...], seconds: float, shown: str
    ) -> int:
        if self.stopped:
            raise GitFailed(f"{shown}: the sync was stopped")
        try:
            process = self._start(words, streams, seconds)
        except OSError as error:
            raise make_storage_failure(error, error.filename or "git", "run") from error
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
        """End a git that outlived the process which started it, and wait for its end."""
        began = time.monotonic()
        while self._is_ours(pid) and (passed := time.monotonic() - began) < 2 * _PATIENCE:
            os.killpg(pid, signal.SIGTERM if passed < _PATIENCE else signal.SIGKILL)
            time.sleep(0.01)

    def _is_ours(self, pid: int) -> bool:
        """True if the process is a git on our repository: process ids are used again."""
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return os.fsencode(f"--git-dir={self.repository}") in words


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
    """End the process after this time. A timer, because `wait` with a limit polls."""
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
    """Ask the process to end, so that it removes its lock files; kill it if it does not."""
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
