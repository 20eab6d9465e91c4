"""Starts the git binary so that nothing in a repository can make it run another program.

No hooks, no prompts, no submodules, no file system monitor, no address that names a program. The variables
of the caller that lead git elsewhere are dropped. `start` and `start_async` send the same options and the
same environment; each command is a process group of its own, which can be ended as a whole.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anyio.abc import Process

OPTIONS: Final = tuple(
    word
    for setting in (
        f"core.hooksPath={os.devnull}", "core.fsmonitor=false", "core.bigFileThreshold=1m",
        "protocol.ext.allow=never", "fetch.unpackLimit=1", "fetch.fsckObjects=false",
        "transfer.fsckObjects=false", "fetch.recurseSubmodules=false", "submodule.recurse=false",
        "push.gpgSign=false", "push.recurseSubmodules=no", "gc.auto=0", "maintenance.auto=false",
        "credential.interactive=false", "http.lowSpeedLimit=1", "http.lowSpeedTime=30",
    )
    for word in ("-c", setting)
)  # fmt: skip
_KEPT: Final = re.compile(
    "GIT_(ASKPASS|CONFIG_GLOBAL|CONFIG_NOSYSTEM|CONFIG_SYSTEM|EXEC_PATH|PROXY_COMMAND"
    "|SSH|SSH_COMMAND|SSH_VARIANT|(SSL|HTTP).*)"
)
"""Variables of git that the user may set: where its configuration is, and how it reaches a remote."""
_SET: Final = {
    "LC_ALL": "C", "LANGUAGE": "", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "file:https:ssh", "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_ATTR_NOSYSTEM": "1",
    "GCM_INTERACTIVE": "never", "SSH_ASKPASS_REQUIRE": "never",
}  # fmt: skip


class GitProgram:
    """The git binary at a path, with its options and its environment.

    `plain`: it may also use `http` and `git`, which anybody on the way can read and change.
    """

    def __init__(self, path: str, variables: Mapping[str, str], *, plain: bool = False) -> None:
        self.path = path
        self.environment = make_git_environment(variables)
        if plain:
            self.environment["GIT_ALLOW_PROTOCOL"] += ":http:git"

    def command(self, words: Sequence[str]) -> list[str]:
        return [self.path, *OPTIONS, *words]

    def start(
        self,
        words: Sequence[str],
        folder: Path,
        streams: Sequence[IO[bytes]],
        *,
        within: Sequence[str] = (),
    ) -> subprocess.Popen[bytes]:
        """Start a command that uses these three streams; `within` is a command that runs it."""
        return subprocess.Popen(
            [*within, *self.command(words)],
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            env=self.environment,
            cwd=folder,
            start_new_session=True,
        )

    async def start_async(self, words: Sequence[str], folder: Path) -> Process:
        """Start a command that reads nothing and writes to pipes."""
        import anyio

        return await anyio.open_process(
            self.command(words),
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=self.environment,
            start_new_session=True,
        )


def make_git_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables for git: those of the caller without git's own, apart from a few, and ours."""
    kept = [name for name in variables if not name.startswith("GIT_") or _KEPT.fullmatch(name)]
    return {**{name: variables[name] for name in kept}, **_SET}
