"""Which files a command reaches: a table of ways to hide one, each of which bash does follow."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sevenfold.core.messages import ToolUse
from sevenfold.testing import FakeClock
from sevenfold.tools.bash_tool import make_environment
from sevenfold.tools.permission_settings import Mode, PermissionRules
from sevenfold.tools.permissions import Behaviour, Permissions
from sevenfold.tools.workspace import Workspace

SECRET = "TOPSECRET"
DENIED = ("Read(.env)", "Read(~/.ssh/**)")


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    """A project in a home, with secrets in both and links that lead out."""
    home, project = tmp_path / "home", tmp_path / "home" / "project"
    for folder in (project / "src" / "deep" / "er", project / "lib", home / ".ssh"):
        folder.mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text(f"{SECRET}\n", "utf-8")
    (project / ".env").write_text(f"TOKEN={SECRET}\n", "utf-8")
    for name in ("a.txt", "a b", "b.py", "src/c.py", "lib/d.py"):
        (project / name).write_text("foo = 1\n", "utf-8")
    (project / "notes.txt").symlink_to("../.ssh/id_rsa")
    (project / "up").symlink_to("src/deep/er")
    (project / "keys").symlink_to("../.ssh")
    key = os.fsencode(home / ".ssh" / "id_rsa")
    (project / "list").write_bytes(key + b"\n")
    (project / "list0").write_bytes(key + b"\0")
    seen = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"}
    return Workspace(project, home, seen, tmp_path / "outputs", FakeClock())


def decided(
    place: Workspace, command: str, *, mode: Mode = "default", deny: tuple[str, ...] = ()
) -> Behaviour:
    use = ToolUse("u", "Bash", {"command": command})
    return Permissions(PermissionRules(mode, deny=deny)).decide(use, place).behaviour


def shown(place: Workspace, command: str) -> str:
    """What it prints when it does run, as the tool would run it."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=place.cwd,
        env=make_environment(place, looking=True),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    return (done.stdout + done.stderr).decode("utf-8", "replace")


# `@` stands for the home folder. What is named outright can be denied, the rest only be asked about.
NAMED = [
    "cat .env",
    "cat \\\n.env",
    "cat \\\n@/.ssh/id_rsa",
    "cat @/.ss\\\nh/id_rsa",
    "ls # it's\ncat .env # it's",
    "ls # it's\ncat @/.ssh/id_rsa # it's",
    'ls # say "\ncat .env # say "',
    'cd src && cat "$PWD/../.env"',
    'cd src && cat "$PWD/../../.ssh/id_rsa"',
    "cd up/../.. && cat .ssh/id_rsa",
    'cat "$PWD"/note*',
    "cat @/project/note*",
    "cat ~/project/note*",
    "cat keys/*",
    "grep -r TOKEN .",
    "grep -rn TOKEN",
    "grep -r -e TOKEN",
    'grep -r TOKEN "$PWD"',
    "grep -r -A 2 TOKEN",
    "grep --recursive TOKEN .",
    "grep -d recurse TOKEN .",
    "timeout 5 timeout 5 grep -r TOKEN",
    "cat a.txt && grep -r TOKEN .",
    "cd src && grep -r TOKEN ..",
    f"grep -R {SECRET} src/../keys",
    f"grep -R {SECRET} .",
    "diff -rN src .",
    "file -bf@/.ssh/id_rsa",
    "hexdump -vf@/.ssh/id_rsa a.txt",
]
UNCERTAIN = [
    'cat {.env,"a b"}',
    "cat {.env,{x}}",
    'cat {~/.ssh/id_rsa,"a b"}',
    "cat .en{u..w}",
    "cat note[^x].txt",
    "cat note[!x].txt",
    "cat note[[:alpha:]].txt",
    "cat list | xargs cat",
    "printf '%s' '../.s' 'sh/id_rsa' | xargs cat",
    "timeout 5 xargs cat < list",
    "sort --files0-from=list0",
    "sort --files0-from list0",
]


@pytest.mark.real
@pytest.mark.parametrize("command", [*NAMED, *UNCERTAIN])
def test_the_rows_are_true_bash_does_show_the_secret(place: Workspace, command: str) -> None:
    if command.startswith(("file", "hexdump")) and shutil.which(command.split()[0]) is None:
        pytest.skip("it is not installed")

    assert SECRET in shown(place, command.replace("@", str(place.home)))


@pytest.mark.parametrize("command", [*NAMED, *UNCERTAIN])
def test_what_reaches_a_secret_is_asked_about(place: Workspace, command: str) -> None:
    assert decided(place, command.replace("@", str(place.home))) == "ask"


@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
@pytest.mark.parametrize("command", NAMED)
def test_what_is_denied_is_denied_however_it_is_written(place: Workspace, command: str, mode: Mode) -> None:
    assert decided(place, command.replace("@", str(place.home)), mode=mode, deny=DENIED) == "deny"


@pytest.mark.parametrize("command", UNCERTAIN)
def test_what_only_bash_can_tell_is_never_allowed_without_a_question(
    place: Workspace, command: str
) -> None:
    assert decided(place, command, deny=DENIED) != "allow"
    assert decided(place, command, mode="dontAsk") == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "ls src",
        "ls -la src lib",
        "pwd",
        "cat a.txt",
        "cat 'a b'",
        "cat *.txt.none a.txt",
        "cat a.txt | grep y",
        "cat a.txt # it's only a remark",
        "cat \\\n a.txt",
        "cd src && cat c.py",
        "cd src && cat ../a.txt",
        'cat "$PWD/a.txt"',
        'cat "$PWD"/b*',
        "grep foo a.txt",
        "grep -n 'a{2,3}' a.txt",
        "grep -rn foo src",
        "grep -rn foo src lib",
        "grep -rn --include='*.py' foo src",
        "head -n 5 a.txt",
        "head -5 src/c.py",
        "tail -n +2 a.txt",
        "wc -l *.py",
        "wc -l src/*.py lib/*.py",
        "sort a.txt | uniq -c",
        "sort -t: -k2 a.txt",
        "diff src lib",
        "diff -u a.txt b.py",
        "file -b a.txt",
        "find src -name '*.py'",
        "echo '{a,b}' {} x",
        "echo 'it is $HOME'",
        "git log",
        "git log --oneline -5",
        "git status && git diff",
    ],
)
def test_ordinary_commands_run_unasked_in_a_folder_that_is_trusted(place: Workspace, command: str) -> None:
    place.trusted = True

    assert decided(place, command) == "allow"
    assert decided(place, command, deny=DENIED) == "allow"


@pytest.mark.parametrize("command", ["cat cat", "cat -- cat", "ls && cat cat", "nl -ba cat"])
def test_a_link_named_like_the_program_is_still_a_file(place: Workspace, command: str) -> None:
    assert decided(place, command) == "allow"

    (place.root / "cat").symlink_to("../.ssh/id_rsa")

    assert SECRET in shown(place, command)
    assert decided(place, command) == "ask"
    assert decided(place, command, deny=DENIED) == "deny"


def test_where_the_users_shell_came_from_is_not_handed_on(place: Workspace) -> None:
    """Bash believes an inherited PWD, and then `cd ..` leaves by the way the link was entered."""
    way = place.home / ".ssh" / "way"
    way.symlink_to(place.root / "src" / "deep")
    place.environment = {**place.environment, "PWD": str(way), "OLDPWD": str(way)}
    place.cwd = way

    for looking in (True, False):
        assert {"PWD", "OLDPWD"}.isdisjoint(make_environment(place, looking=looking))
    assert SECRET not in shown(place, "cd .. && cat id_rsa")
    assert SECRET not in shown(place, "cat ../id_rsa; cd - && cat ../id_rsa")


def test_a_folder_with_more_files_than_can_be_looked_at_is_asked_about(place: Workspace) -> None:
    many = place.root / "many"
    many.mkdir()
    for number in range(5_001):
        (many / str(number)).touch()

    assert decided(place, "grep -rn foo many") == "ask"
    assert decided(place, "grep -rn foo src") == "allow"
