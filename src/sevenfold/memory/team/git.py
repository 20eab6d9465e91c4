"""Runs the git program, so that nothing of a repository can make it run anything else.

No hooks, no prompts, no submodules, no helpers that an address names; only our own bare repository,
never a working folder. What it prints goes to files of a limited size, and it has a limited time. Each
command is a process group of its own: it can be ended as a whole, also by the next run when ours died.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from sevenfold.errors import Mistake
from sevenfold.memory.team.addresses import Address
from sevenfold.memory.team.failing import failed, lock_in_the_way
from sevenfold.memory.team.values import GitFailed
from sevenfold.storage.files import failure, make_private_dir

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


class Git:
    """The git program on one bare repository. `folder` is for its output and for what is running."""

    def __init__(
        self,
        repository: Path,
        folder: Path,
        environment: Mapping[str, str],
        *,
        largest: int = LARGEST,
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

    def far(self, remote: Address, *words: str, pushing: bool = False) -> bytes:
        """A command that talks to the remote."""
        for _ in range(_AGAIN):
            try:
                return self._run(words, b"", FAR, remote, pushing)
            except GitFailed as error:
                lock = lock_in_the_way(error.said)
                if self.stopped or not lock.startswith(str(self.repository)):
                    raise
            time.sleep(_WAIT)  # what a run that died had started just then shows itself late
            self.recover()
        return self._run(words, b"", FAR, remote, pushing)

    def local(self, *words: str, given: bytes = b"") -> bytes:
        """A command that stays on this machine; `given` is what it reads."""
        return self._run(words, given, LOCAL, Address(str(self.repository)), False)

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
        self, words: tuple[str, ...], given: bytes, seconds: float, remote: Address, pushing: bool
    ) -> bytes:
        make_private_dir(self._folder)
        with (
            tempfile.TemporaryFile(dir=self._folder) as asked,
            tempfile.TemporaryFile(dir=self._folder) as out,
            tempfile.TemporaryFile(dir=self._folder) as err,
        ):
            asked.write(given)
            asked.seek(0)
            code = self._ended(
                self._command(words, seconds), (asked, out, err), seconds, remote.shown
            )
            if code == 0:
                return _read(out, OUTPUT)
            said = f"{_read(out, _SAID).decode('utf-8', 'replace') if pushing else ''}\n"
            raise failed(
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

    def _ended(
        self, command: list[str], streams: tuple[IO[bytes], ...], seconds: float, shown: str
    ) -> int:
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
            raise failure(error, command[0], "run") from error
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
