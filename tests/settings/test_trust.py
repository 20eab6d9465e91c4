"""Trust is a list the user made; whatever is wrong with it, nothing is trusted."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sevenfold.core.errors import Refused
from sevenfold.settings.place import TrustedFolders


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "user" / ".sevenfold"


@pytest.fixture
def trust(home: Path, tmp_path: Path) -> TrustedFolders:
    return TrustedFolders(home, tmp_path / "user")


def folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def test_nothing_is_trusted_at_first(trust: TrustedFolders, tmp_path: Path) -> None:
    assert not trust.is_trusted(tmp_path)
    assert (trust.list(), trust.problem) == ((), None)


def test_a_trusted_folder_is_trusted_with_what_is_in_it_and_nothing_beside_it(
    trust: TrustedFolders, tmp_path: Path, home: Path
) -> None:
    project = folder(tmp_path / "work" / "project")
    inner, beside = folder(project / "inner"), folder(tmp_path / "work" / "project-2")

    trust.add(project)

    again = TrustedFolders(home, tmp_path / "user")
    assert [again.is_trusted(path) for path in (project, inner)] == [True, True]
    assert [again.is_trusted(path) for path in (beside, tmp_path / "work")] == [False, False]
    assert again.covering(inner) == project


def test_the_list_is_the_users_alone(trust: TrustedFolders, tmp_path: Path, home: Path) -> None:
    trust.add(folder(tmp_path / "project"))

    assert stat.S_IMODE((home / "trust.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_a_link_is_as_trusted_as_what_it_leads_to(trust: TrustedFolders, tmp_path: Path) -> None:
    project, other = folder(tmp_path / "project"), folder(tmp_path / "other")
    (tmp_path / "link").symlink_to(project)
    (project / "out").symlink_to(other)

    assert trust.add(tmp_path / "link") == project
    assert trust.is_trusted(project)
    assert not trust.is_trusted(project / "out")


def test_revoking_ends_it_also_below(trust: TrustedFolders, tmp_path: Path) -> None:
    one, two = folder(tmp_path / "a" / "one"), folder(tmp_path / "two")
    trust.add(one)
    trust.add(two)

    assert trust.revoke(tmp_path / "a")
    assert trust.list() == (two,)
    assert not trust.revoke(tmp_path / "a")


def test_trusting_twice_lists_once(trust: TrustedFolders, tmp_path: Path) -> None:
    project = folder(tmp_path / "project")

    trust.add(project)
    trust.add(project)

    assert trust.list() == (project,)


def test_folders_that_hold_everything_cannot_be_trusted(trust: TrustedFolders, tmp_path: Path) -> None:
    user = folder(tmp_path / "user")
    anybody = folder(tmp_path / "anybody")
    anybody.chmod(0o1777)

    for path, why in (
        (Path("/"), "everything on this machine"),
        (user, "your home folder"),
        (tmp_path, "your home folder"),
        (anybody, "anybody can put files into it"),
    ):
        with pytest.raises(Refused, match=why):
            trust.add(path)
    assert trust.list() == ()


def test_what_was_written_into_the_list_by_hand_is_held_to_the_same_rules(
    trust: TrustedFolders, tmp_path: Path, home: Path
) -> None:
    trust.add(folder(tmp_path / "project"))
    (home / "trust.json").write_text('{"trusted": ["/", "", ".", "relative"]}', encoding="utf-8")

    assert trust.list() == ()
    assert not trust.is_trusted(tmp_path / "project")


def test_a_folder_that_is_not_there_cannot_be_trusted(trust: TrustedFolders, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="there is no such folder"):
        trust.add(tmp_path / "none")
    assert not trust.is_trusted(tmp_path / "none")


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"trusted": "/"}', b'{"trusted": ["\xff"]}', b"[" * 100_000]
)
def test_a_damaged_list_trusts_nothing_says_so_and_is_kept(
    trust: TrustedFolders, tmp_path: Path, home: Path, damage: bytes
) -> None:
    project = folder(tmp_path / "project")
    trust.add(project)
    (home / "trust.json").write_bytes(damage)

    assert not trust.is_trusted(project)
    assert trust.problem is not None
    assert "trust.json is damaged" in trust.problem
    assert (home / "trust.json.damaged").read_bytes() == damage
    trust.add(project)
    assert trust.is_trusted(project)
    assert trust.problem is None


def test_a_list_that_others_can_write_is_not_the_users_word(
    trust: TrustedFolders, tmp_path: Path, home: Path
) -> None:
    project = folder(tmp_path / "project")
    trust.add(project)
    (home / "trust.json").chmod(0o666)

    assert not trust.is_trusted(project)
    assert trust.problem is not None
    assert "chmod 600" in trust.problem
    (home / "trust.json").chmod(0o600)
    assert trust.is_trusted(project)


def test_a_list_that_cannot_be_read_trusts_nothing(
    trust: TrustedFolders, tmp_path: Path, home: Path
) -> None:
    project = folder(tmp_path / "project")
    folder(home / "trust.json")

    assert not trust.is_trusted(project)
    assert trust.problem is not None
    assert "trust.json could not be read" in trust.problem


WORKER = """
import sys
from pathlib import Path
from sevenfold.settings.place import TrustedFolders

user, step, *folders = sys.argv[1:]
trust = TrustedFolders(Path(user) / ".sevenfold", Path(user))
print("ready", flush=True)
sys.stdin.readline()
for folder in folders:
    getattr(trust, step)(Path(folder))
"""


def test_nothing_is_lost_when_two_processes_add_and_revoke_at_once(
    trust: TrustedFolders, tmp_path: Path
) -> None:
    old = [folder(tmp_path / f"old{n}") for n in range(150)]
    new = [folder(tmp_path / f"new{n}") for n in range(150)]
    for path in old:
        trust.add(path)
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path / "user"), step, *map(str, folders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        for step, folders in (("revoke", old), ("add", new))
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"

    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        worker.communicate(timeout=60)

    assert [worker.returncode for worker in workers] == [0, 0]
    assert [path for path in old if trust.is_trusted(path)] == []
    assert set(trust.list()) == set(new)


# --- trust is bound to what was trusted -------------------------------------------------------------------


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


HOOK = '{"hooks": {"Stop": [{"hooks": [{"command": "./check.sh"}]}]}}'


@pytest.mark.parametrize(
    ("file", "text", "line"),
    [
        (".sevenfold/settings.json", HOOK, "hooks.Stop"),
        (".sevenfold/settings.json", '{"permissions": {"allow": ["Bash(rm:*)"]}}', 'allow: "Bash(rm:*)"'),
        (".sevenfold/settings.json", '{"permissions": {"additionalDirectories": ["/"]}}', "additionalDir"),
        (".sevenfold/settings.local.json", '{"anthropicBaseUrl": "http://evil"}', '"http://evil"'),
        (".sevenfold/agents/helper.md", "---\nname: x\n---\n", "agents/helper.md"),
        (".sevenfold/settings.json", "{", "settings.json: digest"),
        (".claude/agents/deep/helper.md", "x", "agents/deep/helper.md"),
        (".claude/settings.json", HOOK, ".claude/settings.json: hooks.Stop"),
        (".mcp.json", '{"mcpServers": {"x": {"command": "evil"}}}', ".mcp.json"),
    ],
)
def test_what_changed_since_is_not_trusted_until_the_user_says_so_again(
    trust: TrustedFolders, tmp_path: Path, file: str, text: str, line: str
) -> None:
    project = folder(tmp_path / "project")
    write(project / ".sevenfold" / "agents" / "old.md", "old")
    trust.add(project)
    assert trust.is_trusted(project)

    write(project / file, text)

    assert not trust.is_trusted(project)
    (change,) = trust.list_changes(project)
    assert change.startswith("+ ")
    assert line in change
    assert change in trust.describe_changes(project)
    trust.add(project)
    assert trust.is_trusted(project)
    (project / file).unlink()
    assert trust.list_changes(project) == (f"- {change[2:]}",)


@pytest.mark.parametrize(
    "text", ['{"permissions": {"deny": ["Bash(rm:*)"], "ask": ["Bash"]}}', "{}", '{"$schema": "x"}']
)
def test_what_only_restricts_is_no_change(trust: TrustedFolders, tmp_path: Path, text: str) -> None:
    project = folder(tmp_path / "project")
    trust.add(project)

    write(project / ".sevenfold" / "settings.json", text)

    assert trust.is_trusted(project)


def test_a_repository_inside_a_trusted_folder_is_its_own(trust: TrustedFolders, tmp_path: Path) -> None:
    project = folder(tmp_path / "project")
    nested, plain = folder(project / "vendor" / "nested"), folder(project / "plain")
    folder(nested / ".git")
    below = folder(nested / "src")
    trust.add(project)

    assert [trust.is_trusted(path) for path in (project, plain)] == [True, True]
    assert [trust.is_trusted(path) for path in (nested, below)] == [False, False]
    assert trust.covering(below) is None
    trust.add(nested)
    assert trust.is_trusted(below)


def test_a_folder_below_with_files_of_its_own_is_asked_about(trust: TrustedFolders, tmp_path: Path) -> None:
    project = folder(tmp_path / "project")
    trust.add(project)

    write(project / "inner" / ".sevenfold" / "settings.json", HOOK)

    assert not trust.is_trusted(project / "inner")
    assert trust.is_trusted(project)


def test_a_work_tree_is_trusted_as_long_as_it_says_what_the_repository_said(
    trust: TrustedFolders, tmp_path: Path
) -> None:
    root, tree = folder(tmp_path / "project"), folder(tmp_path / "tree")
    for place in (root, tree):
        write(place / ".sevenfold" / "settings.json", HOOK)
    trust.add(root)
    assert trust.is_trusted(root, tree)

    write(tree / ".sevenfold" / "settings.json", HOOK.replace("check", "other"))

    assert not trust.is_trusted(root, tree)
    assert len(trust.list_changes(root, tree)) == 2
    trust.add(root, tree)
    assert trust.is_trusted(root, tree)
    assert trust.is_trusted(root)


def test_very_many_lines_are_kept_as_a_digest(trust: TrustedFolders, tmp_path: Path) -> None:
    project, file = folder(tmp_path / "project"), tmp_path / "project" / ".sevenfold" / "settings.json"
    rules = ", ".join(f'"Bash(x{number})"' for number in range(2_000))
    write(file, f'{{"permissions": {{"allow": [{rules}]}}}}')
    trust.add(project)
    assert trust.is_trusted(project)

    write(file, f'{{"permissions": {{"allow": [{rules}, "Bash"]}}}}')

    assert not trust.is_trusted(project)
