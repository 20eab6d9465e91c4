"""The attack list: run in the sandbox whatever the rules say of it, and decided without one."""

from __future__ import annotations

import os
import random
import re
import select
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.attacks import ATTACKS, CONNECTS, KEY, NAMES, READS, SILENT, TELLS

from sevenfold.core.messages import ToolUse
from sevenfold.testing import FakeClock
from sevenfold.tools.bash_tool import make_environment, make_sandbox
from sevenfold.tools.permission_settings import PermissionRules, SandboxUse
from sevenfold.tools.permissions import Permissions
from sevenfold.tools.processes import run_program
from sevenfold.tools.sandbox import find_landlock_version
from sevenfold.tools.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.real]
needs_sandbox = pytest.mark.skipif(not find_landlock_version(), reason="this system has no Landlock")

# What is planted, as programs show it: plain, by letters, reversed, encoded, counted, compared.
LEAK = re.compile(
    rb"TOPSECRET|T +O +P +S +E|TERCESPOT|VE9QU0VDUkVU|TOKENVALUE|PLANTED"
    rb"|\b\d+ \S*id_rsa|id_rsa: (?:OK|ASCII)"
)


class Target:
    """A home with a project in it, secrets around it, another process, and listeners."""

    def __init__(self, top: Path) -> None:
        self.home = home = top / "home"
        project = home / "project"
        for folder in (project / "sub" / "deep", home / ".ssh"):
            folder.mkdir(parents=True)
        (home / KEY).write_text("TOPSECRET\n", "utf-8")
        (home / ".ssh" / "PLANTED").touch()
        (home / ".gitconfig").write_text("[user]\n\ttoken = TOPSECRET\n", "utf-8")
        for name in ("a.txt", "sub/b.txt"):
            (project / name).write_text("foo = 1\n", "utf-8")
        (project / "tool").write_text("#!/bin/sh\ntouch made\n", "utf-8")
        (project / "tool").chmod(0o755)
        links = {"note": f"../{KEY}", "keys": "../.ssh", "sub/keys": "../../.ssh", "chain": "note"}
        links |= {"up": "sub/deep", "here": "/proc/self/cwd", "fds": "/proc/self/fd"}
        for name, target in links.items():
            (project / name).symlink_to(target)
        key = os.fsencode(home / KEY)
        (project / "list").write_bytes(key + b"\n")
        (project / "list0").write_bytes(key + b"\0")
        sums = [subprocess.check_output([name, home / KEY]) for name in ("md5sum", "sha256sum")]
        (project / "sums").write_bytes(b"".join(sums))
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "DEPLOY_TOKEN": "TOKENVALUE"}
        git = ["git", "-c", "user.name=x", "-c", "user.email=x@y"]
        for words in (["init", "-q"], ["add", "a.txt"], ["commit", "-qm", "x"]):
            subprocess.run([*git, *words], cwd=project, env=environment, check=True)
        self.place = Workspace(project, home, environment, top / "outputs", FakeClock(), trusted=True)
        self._listen(top)
        script = f"exec 9< {KEY}; exec sleep 600"
        self.other = subprocess.Popen(["sh", "-c", script], cwd=home, env=environment)

    def _listen(self, top: Path) -> None:
        self._sockets = [
            socket.socket(socket.AF_INET, socket.SOCK_STREAM),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
        ]
        tcp, udp, unix = self._sockets
        tcp.bind(("127.0.0.1", 0))
        self._port = tcp.getsockname()[1]
        udp.bind(("127.0.0.1", self._port))
        self._socket_path = top / "s"
        unix.bind(str(self._socket_path))
        tcp.listen(64)
        unix.listen(64)

    def close(self) -> None:
        self.other.kill()
        self.other.wait()
        for one in self._sockets:
            one.close()

    def fill(self, line: str) -> str:
        """The line with what it stands for."""
        line = line.replace("@/", f"{self.home}/").replace("%P", str(self._port))
        return line.replace("%S", str(self._socket_path)).replace("%I", str(self.other.pid))

    def is_reached(self) -> bool:
        """True if something has come in since the last time."""
        ready, _, _ = select.select(self._sockets, [], [], 0)
        for one in ready:
            if one.type == socket.SOCK_DGRAM:
                one.recv(100)
            else:
                one.accept()[0].close()
        return bool(ready)

    def list_files(self) -> dict[str, tuple[int, int, int, bytes]]:
        """Everything that a command could have changed."""
        found = {}
        for path in (*self.home.rglob("*"), *Path("/tmp").glob(f"{self.other.pid}.made")):
            state = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[str(path)] = (state.st_mode, state.st_uid, state.st_mtime_ns, content)
        return found


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    made = Target(tmp_path)
    yield made
    made.close()


async def run_line(target: Target, line: str, *, unasked: bool) -> bytes:
    """What it prints when it runs as the tool would run it."""
    place, command = target.place, target.fill(line)
    ran = await run_program(
        ["bash", "-c", command],
        cwd=place.root,
        env=make_environment(place, looking=unasked, unasked=unasked),
        seconds=20 if unasked else 2,
        watch=place.watch,
        sandbox=make_sandbox(place, command, unasked=unasked),
    )
    return ran.output.text.encode("utf-8")


async def survive(target: Target, lines: list[str]) -> None:
    before = target.list_files()
    for line in lines:
        said = await run_line(target, line, unasked=True)

        assert not LEAK.search(said), (line, said)
        assert not target.is_reached(), line
        assert target.list_files() == before, line


def slice_of(lines: list[str], count: int) -> list[str]:
    return random.Random(18).sample(lines, count)


def test_the_list_is_long() -> None:
    assert len(ATTACKS) >= 700


@needs_sandbox
async def test_no_attack_gets_out_of_the_sandbox(target: Target) -> None:
    await survive(target, slice_of(ATTACKS, 150))


@needs_sandbox
@pytest.mark.soak
async def test_no_attack_of_the_whole_list_gets_out_of_the_sandbox(target: Target) -> None:
    await survive(target, ATTACKS)


async def test_the_attacks_are_real_without_the_sandbox_they_succeed(target: Target) -> None:
    lines = [*slice_of(READS, 40), *slice_of(NAMES, 10), *slice_of(TELLS, 20)]
    told = [line for line in lines if LEAK.search(await run_line(target, line, unasked=False))]

    assert len(told) > len(lines) * 0.7
    await run_line(target, CONNECTS[0], unasked=False)
    assert target.is_reached()


@pytest.mark.parametrize("trusted", [True, False])
def test_no_attack_is_allowed_unasked_without_the_sandbox(target: Target, trusted: bool) -> None:
    target.place.trusted = trusted
    permissions = Permissions(PermissionRules())

    allowed = [
        line
        for line in ATTACKS
        if permissions.decide(ToolUse("u", "Bash", {"command": target.fill(line)}), target.place).behaviour
        == "allow"
    ]

    assert not allowed


@pytest.mark.parametrize("sandbox", ["unasked", "off"])
async def test_what_may_run_unasked_tells_nothing(target: Target, sandbox: SandboxUse) -> None:
    target.place.sandbox = sandbox

    for line in SILENT:
        decision = Permissions(PermissionRules()).decide(
            ToolUse("u", "Bash", {"command": line}), target.place
        )

        assert decision.behaviour == "allow"
        assert not LEAK.search(await run_line(target, line, unasked=True)), line
