"""Random commands, run for real whenever they would run unasked: nothing is leaked or written.

The commands are put together from the pieces that matter: quotes, patterns, links, folders, separators.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sevenfold.core.messages import ToolUse
from sevenfold.testing import FakeClock
from sevenfold.tools.permission_settings import PermissionRules
from sevenfold.tools.permissions import Permissions
from sevenfold.tools.workspace import Workspace

pytestmark = pytest.mark.real


def pieces(text: str, *others: str) -> list[str]:
    return [*text.split(), *others]


READING = pieces(
    r"""
    cat head tail nl sort .env .e nv env . link li nk out /x.txt src /key.pem key pem * ? [e] [.] {
    , } ' " \ $HOME ${HOME} ~ ~/.ssh/id_rsa /.ssh/id_rsa .. ../ / && ; | < up.txt $PWD a.txt - -- =
    # ! deep $' \x2e $OLDPWD ~+ ~- ( ) cd HEAD: [^x] [!x] xargs grep -r -R "$PWD"/ /../ {.env, "}
    /proc/self/cwd /proc/self /dev/fd /dev/stdin /dev/fd/0 /cwd /root here fds /.. /../up.txt
    """,
    *([" "] * 12),
    "\n",
    "\\\n",
    " # it's\n",
    '{.env,"a b"}',
    "grep -r S ",
    "; cd src && cat ",
    "; cd src && cat $PWD/..",
    "; cd way/../.. && cat ",
    " /dev/stdin/../../up.txt < src",
    "; cd src && cat /proc/self/cwd/../../up.txt",
    "wc --files0-from=",
    "md5sum -c ",
)
ACTING = pieces(
    r"""
    echo touch PWNED ; && || | & $( ) ( ` ' " \ > >> < <( >( { } # ! $ $' x = A=1 -n [[ ]] if then
    fi eval $IFS ${ <<E E 2>&1 , * ~
    """,
    *([" "] * 8),
    "\n",
    "\t",
    "\r",
    "touch PWNED",
    "\nE\n",
)


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    for name in ("project/src/deep", "home/.ssh", "other"):
        (tmp_path / name).mkdir(parents=True)
    project = tmp_path / "project"
    for name in ("project/.env", "home/.ssh/id_rsa", "other/x.txt", "project/src/key.pem", "up.txt"):
        (tmp_path / name).write_text("TOPSECRET\n", "utf-8")
    (project / "link").symlink_to(project / ".env")
    (project / "out").symlink_to(tmp_path / "other")
    (project / "way").symlink_to("src/deep")
    (project / "here").symlink_to("/proc/self/cwd")
    (project / "fds").symlink_to("/proc/self/fd")
    (project / "a.txt").write_text("plain\n", "utf-8")
    return Workspace(project, tmp_path / "home", {}, tmp_path / "outputs", FakeClock())


def campaign(
    place: Workspace,
    permissions: Permissions,
    words: list[str],
    tries: int,
    check: Callable[[str, bytes], None],
) -> int:
    """How many commands ran."""
    chance, ran = random.Random(7), 0
    for _ in range(tries):
        command = f"{words[0]} " + "".join(chance.choices(words, k=chance.randint(1, 6)))
        use = ToolUse("u", "Bash", {"command": command})
        if permissions.decide(use, place).behaviour != "allow":
            continue
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=place.root,
            env={"PATH": "/usr/bin:/bin", "HOME": str(place.home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            check=False,
        )
        check(command, done.stdout + done.stderr)
        ran += 1
    return ran


def leaks_nothing(place: Workspace, tries: int) -> int:
    def check(command: str, output: bytes) -> None:
        assert b"TOPSECRET" not in output, command

    return campaign(place, Permissions(PermissionRules()), READING, tries, check)


def writes_nothing(place: Workspace, tries: int) -> int:
    before = sorted(place.root.rglob("*"))

    def check(command: str, output: bytes) -> None:
        assert sorted(place.root.rglob("*")) == before, command

    permissions = Permissions(PermissionRules(allow=("Bash(echo:*)",)))
    return campaign(place, permissions, ACTING, tries, check)


def test_no_command_that_runs_unasked_shows_a_secret(place: Workspace) -> None:
    assert leaks_nothing(place, 1_000) > 50


def test_a_rule_for_one_program_lets_no_other_act(place: Workspace) -> None:
    assert writes_nothing(place, 1_000) > 20


@pytest.mark.soak
def test_no_command_that_runs_unasked_shows_a_secret_in_a_long_campaign(place: Workspace) -> None:
    assert leaks_nothing(place, 100_000) > 5_000


@pytest.mark.soak
def test_a_rule_for_one_program_lets_no_other_act_in_a_long_campaign(place: Workspace) -> None:
    assert writes_nothing(place, 100_000) > 2_000
