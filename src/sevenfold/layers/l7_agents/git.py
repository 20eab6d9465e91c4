"""Runs the git binary for the work trees of agents: no hooks, no prompts, nothing taken from the caller.

A variable such as `GIT_DIR` in the environment would send a command into another repository, so those are
left out. What git says no to becomes one sentence with its own reason in it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import ByteReceiveStream

from sevenfold.errors import Mistake, StorageFailure
from sevenfold.tools.processes import end_groups

SECONDS: Final = 300.0
"""How long one command may take: a large project is written out whole."""
_SAFE: Final = (
    f"core.hooksPath={os.devnull}",
    "core.fsmonitor=false",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
)
_ALWAYS: Final = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}
_PASSED_ON: Final = frozenset(
    {"GIT_EXEC_PATH", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"}
)
_REASON: Final = ("fatal: ", "error: ")
_LONGEST: Final = 300


class Ran(msgspec.Struct, frozen=True):
    """How a command ended."""

    code: int
    out: bytes
    why: str = ""
    """What git gave as the reason, on one line."""

    @property
    def text(self) -> str:
        return os.fsdecode(self.out).strip()


class Git:
    """The program, and what it gets to see."""

    def __init__(
        self, program: str | None, environment: Mapping[str, str], *, seconds: float = SECONDS
    ) -> None:
        """`program` is its path, None where there is none. `environment` is what commands get to see."""
        self._program, self._seconds = program, seconds
        kept = {
            name: value
            for name, value in environment.items()
            if not name.startswith("GIT_") or name in _PASSED_ON
        }
        self._environment = {**kept, **_ALWAYS}

    async def ask(self, where: Path, *arguments: str | Path) -> Ran:
        """Run a command in a folder, whatever comes of it."""
        if self._program is None:
            raise Mistake("git was not found; install it, or start the agent without isolation")
        options = [part for one in _SAFE for part in ("-c", one)]
        command = [self._program, *options, *(str(one) for one in arguments)]
        try:
            with anyio.fail_after(self._seconds):
                return await _run(command, where, self._environment)
        except TimeoutError:
            raise StorageFailure(
                f"git {arguments[0]} in {where} took longer than {self._seconds:.0f} seconds and was "
                "stopped; look what holds it up there"
            ) from None
        except OSError as error:
            raise StorageFailure(
                f"{self._program} could not be run in {where}: {(error.strerror or str(error)).lower()}; "
                "check that both are there"
            ) from error

    async def do(self, where: Path, *arguments: str | Path) -> Ran:
        """The same, for what has to succeed."""
        done = await self.ask(where, *arguments)
        if done.code:
            raise StorageFailure(f"git {arguments[0]} in {where} failed: {done.why}")
        return done


async def _run(command: Sequence[str], where: Path, environment: Mapping[str, str]) -> Ran:
    """To its end; when that is not waited for, whatever it has started is ended with it."""
    process = await anyio.open_process(
        command,
        stdin=subprocess.DEVNULL,  # nobody is there to answer
        cwd=where,
        env=environment,
        start_new_session=True,
    )
    out, said = bytearray(), bytearray()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_drain, process.stdout, out)
            tasks.start_soon(_drain, process.stderr, said)
            await process.wait()
    except BaseException:
        await end_groups({process.pid})
        raise
    finally:
        with anyio.CancelScope(shield=True):
            await process.aclose()
    return Ran(process.returncode or 0, bytes(out), _reason(bytes(said)))


async def _drain(stream: ByteReceiveStream | None, into: bytearray) -> None:
    if stream is not None:
        async for chunk in stream:
            into += chunk


def _reason(stderr: bytes) -> str:
    """The lines in which git says why; all of them when none says so."""
    lines = [
        line.strip() for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()
    ]
    given = [line for line in lines if line.startswith(_REASON)] or lines
    said = "; ".join(
        dict.fromkeys(
            line.split(": ", 1)[-1] if line.startswith(_REASON) else line for line in given
        )
    )
    said = "".join(letter if letter.isprintable() else " " for letter in said)
    return said[:_LONGEST] or "it gave no reason"
