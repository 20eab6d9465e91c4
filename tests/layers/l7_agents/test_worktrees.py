"""Work trees with the real git: made from what is checked out, removed only when nothing is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from sevenfold.core.errors import Mistake, Refused, StorageFailure
from sevenfold.layers.l7_agents.worktrees import Worktree, Worktrees

GIT = shutil.which("git")
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real,
    pytest.mark.skipif(GIT is None, reason="git is not installed"),
]


class Place:
    """A repository with one commit, and a folder for work trees."""

    def __init__(self, root: Path) -> None:
        self.root, self.tree, self.folder = root, root / "project", root / "trees"
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(root)}
        self.tree.mkdir()
        (root / ".gitconfig").write_text(
            "[user]\nname = T\nemail = t@example.org\n[init]\ndefaultBranch = main\n"
            '[protocol "file"]\nallow = always\n',
            encoding="utf-8",
        )
        self.git("init", "-q")
        self.write("a.txt", "one\n")
        self.write(".gitignore", "*.log\ndist/\n__pycache__/\n")
        self.commit("first")

    def git(self, *arguments: str, at: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=at or self.tree,
            env=self.environment,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def write(self, name: str, text: str, at: Path | None = None) -> None:
        path = (at or self.tree) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def commit(self, message: str, at: Path | None = None) -> None:
        self.git("add", "-A", at=at)
        self.git("commit", "-q", "-m", message, at=at)

    def branches(self) -> list[str]:
        return self.git("branch", "--format=%(refname:short)").splitlines()

    def registered(self) -> int:
        return self.git("worktree", "list", "--porcelain").count("worktree ")

    def trees(self, **options: object) -> Worktrees:
        """As a session has them; each call is another session."""
        given: dict[str, object] = {"program": GIT, "environment": self.environment}
        given |= {"trusted": True, **options}
        return Worktrees(self.tree, self.folder, **given)  # type: ignore[arg-type]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def nothing_left(place: Place) -> bool:
    return (
        place.branches() == ["main"]
        and place.registered() == 1
        and (not place.folder.exists() or list(place.folder.iterdir()) == [])
    )


# --- making -------------------------------------------------------------------------------------------


async def test_it_is_the_last_commit_on_a_branch_of_its_own(place: Place) -> None:
    place.write("a.txt", "not committed\n")
    mine = await place.trees().make("a1")
    assert (mine.path, mine.branch) == (place.folder / "a1", "sevenfold/a1")
    assert (mine.path / "a.txt").read_text(encoding="utf-8") == "one\n"
    assert place.git("branch", "--show-current", at=mine.path) == "sevenfold/a1"
    assert mine.began == place.git("rev-parse", "HEAD")
    assert place.git("branch", "--show-current") == "main"


async def test_hooks_of_the_repository_are_not_run(place: Place) -> None:
    ran = place.root / "ran"
    for name in ("post-checkout", "reference-transaction", "post-index-change"):
        hook = place.tree / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\necho {name} >> {ran}\n", encoding="utf-8")
        hook.chmod(0o755)
    trees = place.trees()
    await trees.leave(await trees.make("a1"))
    assert not ran.exists()
    assert nothing_left(place)


async def test_variables_of_the_caller_do_not_lead_elsewhere(place: Place) -> None:
    other = place.root / "other"
    place.git("init", "-q", str(other))
    wrong = {**place.environment, "GIT_DIR": str(other / ".git"), "GIT_WORK_TREE": str(other)}
    mine = await place.trees(environment=wrong).make("a1")
    assert (mine.path / "a.txt").exists()


async def test_agents_that_begin_together_do_not_meet(place: Place) -> None:
    trees = place.trees()
    made: list[Worktree] = []

    async def one(id: str) -> None:
        made.append(await trees.make(id))

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(one, f"a{number}")
    assert len({tree.path for tree in made}) == 6
    assert [(await trees.leave(tree)).partition(" ")[0] for tree in made] == ["removed"] * 6
    assert nothing_left(place)


async def test_from_a_detached_head_it_begins_there(place: Place) -> None:
    first = place.git("rev-parse", "HEAD")
    place.write("a.txt", "two\n")
    place.commit("second")
    place.git("checkout", "-q", first)
    trees = place.trees()
    mine = await trees.make("a1")
    assert mine.began == first
    assert (mine.path / "a.txt").read_text(encoding="utf-8") == "one\n"
    assert (await trees.leave(mine)).startswith("removed")


async def test_a_bare_repository_has_work_trees_too(place: Place) -> None:
    bare = place.root / "bare.git"
    place.git("clone", "-q", "--bare", str(place.tree), str(bare))
    trees = Worktrees(bare, place.folder, GIT, place.environment, trusted=True)
    mine = await trees.make("a1")
    assert (mine.path / "a.txt").exists()
    assert (await trees.leave(mine)).startswith("removed")


async def test_in_a_work_tree_of_the_users_it_begins_where_that_one_is(place: Place) -> None:
    linked = place.root / "linked"
    place.git("worktree", "add", "-q", "-b", "feature", str(linked))
    place.write("b.txt", "b\n", linked)
    place.commit("on feature", linked)
    trees = Worktrees(linked, place.folder, GIT, place.environment, trusted=True)
    mine = await trees.make("a1")
    assert (mine.path / "b.txt").exists()
    assert (await trees.leave(mine)).startswith("removed")


async def test_submodules_are_not_checked_out_and_stand_in_nobodys_way(place: Place) -> None:
    library = place.root / "library"
    place.git("init", "-q", str(library))
    place.write("l.txt", "l\n", library)
    place.commit("library", library)
    place.git("submodule", "add", "-q", str(library), "lib")
    place.commit("with a submodule")
    trees = place.trees()
    mine = await trees.make("a1")
    assert list((mine.path / "lib").iterdir()) == []
    assert (await trees.leave(mine)).startswith("removed")
    again = await trees.make("a2")
    place.git("submodule", "update", "--init", "-q", at=again.path)
    assert "a submodule was checked out" in await trees.leave(again)
    assert (again.path / "lib" / "l.txt").exists()


# --- what cannot be made ------------------------------------------------------------------------------


async def test_without_git_it_says_so(place: Place) -> None:
    with pytest.raises(Mistake, match="git was not found"):
        await place.trees(program=None).make("a1")
    with pytest.raises(StorageFailure, match="could not be run"):
        await place.trees(program=str(place.root / "absent")).make("a1")
    assert not place.folder.exists()


async def test_outside_a_repository_it_says_so(place: Place) -> None:
    plain = place.root / "plain"
    plain.mkdir()
    trees = Worktrees(plain, place.folder, GIT, place.environment, trusted=True)
    with pytest.raises(Mistake, match=r"not a git repository.*without isolation"):
        await trees.make("a1")


async def test_before_the_first_commit_it_says_so(place: Place) -> None:
    new = place.root / "new"
    place.git("init", "-q", str(new))
    trees = Worktrees(new, place.folder, GIT, place.environment, trusted=True)
    with pytest.raises(Mistake, match="nothing is committed there yet"):
        await trees.make("a1")


async def test_where_nobody_trusts_the_project_git_is_not_even_run(place: Place) -> None:
    trees = place.trees(trusted=False, program=str(place.root / "absent"))
    with pytest.raises(Refused, match="not trusted"):
        await trees.make("a1")


async def test_a_branch_that_is_there_is_left_alone(place: Place) -> None:
    place.git("branch", "sevenfold/a1")
    with pytest.raises(Mistake, match=r"sevenfold/a1 could not be made.*another id"):
        await place.trees().make("a1")
    assert place.branches() == ["main", "sevenfold/a1"]
    assert not list(place.folder.iterdir())


async def test_a_branch_called_sevenfold_is_in_the_way_and_that_is_said(place: Place) -> None:
    place.git("branch", "sevenfold")
    with pytest.raises(Mistake, match="refs/heads/sevenfold"):
        await place.trees().make("a1")
    assert place.branches() == ["main", "sevenfold"]


async def test_an_id_is_used_once(place: Place) -> None:
    trees = place.trees()
    await trees.make("a1")
    for other in (trees, place.trees()):
        with pytest.raises(Mistake, match="already"):
            await other.make("a1")
    (place.folder / "a2").mkdir()
    with pytest.raises(Mistake, match="already"):
        await trees.make("a2")
    assert (place.folder / "a1" / "a.txt").exists()


@pytest.mark.parametrize("id", ["", "..", "a..b", "a/b", "-x", "a.lock", "a ", "a\n", "x" * 101, "a~1"])
async def test_an_id_that_could_be_something_else_is_refused(place: Place, id: str) -> None:
    with pytest.raises(Mistake, match="cannot name a work tree"):
        await place.trees().make(id)
    assert nothing_left(place)


async def test_a_folder_that_cannot_be_written_is_said_and_nothing_is_left(place: Place) -> None:
    (place.root / "trees").write_text("a file", encoding="utf-8")
    with pytest.raises(StorageFailure, match="trees"):
        await place.trees().make("a1")
    assert place.branches() == ["main"]


async def test_a_file_that_cannot_be_written_out_leaves_nothing_behind(place: Place) -> None:
    place.write(".gitattributes", "a.txt filter=broken\n")
    place.commit("attributes")
    place.git("config", "filter.broken.smudge", "exit 1")
    place.git("config", "filter.broken.required", "true")
    with pytest.raises(StorageFailure, match=r"git worktree in .* failed: .*smudge filter broken"):
        await place.trees().make("a1")
    assert nothing_left(place)


async def test_a_locked_reference_is_said(place: Place) -> None:
    lock = place.tree / ".git" / "refs" / "heads" / "sevenfold" / "a1.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    with pytest.raises(Mistake, match=r"a1\.lock"):
        await place.trees().make("a1")


async def test_one_that_takes_too_long_is_stopped_and_taken_back(place: Place) -> None:
    place.write(".gitattributes", "a.txt filter=slow\n")
    place.commit("attributes")
    place.git("config", "filter.slow.smudge", "sleep 60; cat")
    with pytest.raises(StorageFailure, match="took longer than 1 seconds"):
        await place.trees(seconds=1.0).make("a1")
    assert nothing_left(place)


async def test_one_that_is_cancelled_half_way_is_taken_back(place: Place) -> None:
    began = place.root / "began"
    os.mkfifo(began)
    place.write(".gitattributes", "a.txt filter=slow\n")
    place.commit("attributes")
    place.git("config", "filter.slow.smudge", f"echo > {began}; sleep 60; cat")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(place.trees().make, "a1")
        await anyio.Path(began).read_bytes()  # until the filter runs
        tasks.cancel_scope.cancel()
    assert nothing_left(place)


# --- leaving ------------------------------------------------------------------------------------------


async def test_a_clean_one_is_removed_with_its_branch(place: Place) -> None:
    trees = place.trees()
    mine = await trees.make("a1")
    said = await trees.leave(mine)
    assert said == f"removed {mine.path} and its branch: nothing was left in it"
    assert nothing_left(place)


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.txt", "changed\n"), ("new.txt", "new\n"), ("deep/er/n.txt", "n\n"), ("run.log", "ignored\n"),
     ("dist/app.bin", "built\n"), ("name with\n newline é.txt", "odd\n")],
)  # fmt: skip
async def test_one_with_work_in_it_is_kept_and_both_names_are_said(
    place: Place, name: str, text: str
) -> None:
    trees = place.trees()
    mine = await trees.make("a1")
    place.write(name, text, mine.path)
    said = await trees.leave(mine)
    assert said.startswith(f"kept {mine.path} on the branch sevenfold/a1: not committed: ")
    assert name.split("/")[0] in said
    assert (mine.path / name).read_text(encoding="utf-8") == text


async def test_a_file_that_was_removed_or_staged_or_renamed_is_work(place: Place) -> None:
    trees = place.trees()
    gone, staged, moved = [await trees.make(id) for id in ("gone", "staged", "moved")]
    (gone.path / "a.txt").unlink()
    place.write("b.txt", "b\n", staged.path)
    place.git("add", "b.txt", at=staged.path)
    place.git("mv", "a.txt", "z.txt", at=moved.path)
    for tree, file in ((gone, "a.txt"), (staged, "b.txt"), (moved, "z.txt")):
        assert f"not committed: {file}." in await trees.leave(tree)


async def test_what_tools_make_again_does_not_keep_one(place: Place) -> None:
    trees = place.trees()
    mine = await trees.make("a1")
    place.write("pkg/__pycache__/m.cpython-311.pyc", "x", mine.path)
    assert (await trees.leave(mine)).startswith("removed")
    again = await trees.make("a2")
    place.write("node_modules/x/index.js", "x", again.path)  # not ignored here: it counts
    assert "node_modules" in await trees.leave(again)


async def test_one_that_is_ahead_is_kept(place: Place) -> None:
    trees = place.trees()
    mine = await trees.make("a1")
    place.write("b.txt", "b\n", mine.path)
    place.commit("mine", mine.path)
    said = await trees.leave(mine)
    assert "1 commit of its own" in said
    assert (mine.path / "b.txt").exists()
    assert "sevenfold/a1" in place.branches()


async def test_commits_on_no_branch_keep_it_too(place: Place) -> None:
    trees = place.trees()
    mine = await trees.make("a1")
    place.git("checkout", "-q", "--detach", at=mine.path)
    place.git("commit", "-q", "--allow-empty", "-m", "x", at=mine.path)
    place.git("commit", "-q", "--allow-empty", "-m", "y", at=mine.path)
    assert "2 commits of its own" in await trees.leave(mine)


async def test_what_the_project_commits_meanwhile_does_not_matter(place: Place) -> None:
    trees = place.trees()
    mine = await trees.make("a1")
    place.write("a.txt", "two\n")
    place.commit("second")
    assert (await trees.leave(mine)).startswith("removed")
    assert nothing_left(place)


async def test_one_that_went_back_to_an_older_commit_is_removed(place: Place) -> None:
    place.write("a.txt", "two\n")
    place.commit("second")
    trees = place.trees()
    mine = await trees.make("a1")
    place.git("reset", "-q", "--hard", "HEAD~1", at=mine.path)
    assert (await trees.leave(mine)).startswith("removed")
    assert nothing_left(place)


async def test_a_merge_under_way_keeps_it(place: Place) -> None:
    trees = place.trees()
    mine = await trees.make("a1")
    place.write("b.txt", "b\n")
    place.commit("second")
    place.git("merge", "-q", "--no-ff", "--no-commit", "main", at=mine.path)
    assert "a merge is under way" in await trees.leave(mine)


async def test_an_index_that_was_left_locked_harms_nothing(place: Place) -> None:
    trees = place.trees()
    (place.tree / ".git" / "index.lock").touch()
    mine = await trees.make("a1")
    (place.tree / ".git" / "worktrees" / "a1" / "index.lock").touch()
    assert (await trees.leave(mine)).startswith("removed")


async def test_one_that_is_no_work_tree_any_more_is_left_alone(place: Place) -> None:
    inside = Worktrees(place.tree, place.tree / "dist" / "trees", GIT, place.environment, trusted=True)
    mine = await inside.make("a1")
    (mine.path / ".git").unlink()  # now git would take it for a part of the project around it
    assert "no work tree of git any more" in await inside.leave(mine)
    assert (mine.path / "a.txt").exists()


async def test_one_that_the_user_locked_is_kept(place: Place) -> None:
    trees = place.trees()
    mine = await trees.make("a1")
    place.git("worktree", "lock", "--reason", "mine", str(mine.path))
    said = await trees.leave(mine)
    assert said.startswith("kept")
    assert "locked" in said
    assert mine.path.exists()


async def test_one_whose_folder_is_gone_leaves_only_what_was_committed(place: Place) -> None:
    trees = place.trees()
    empty, full = await trees.make("empty"), await trees.make("full")
    place.git("commit", "-q", "--allow-empty", "-m", "x", at=full.path)
    for tree in (empty, full):
        shutil.rmtree(tree.path)
    assert (await trees.leave(empty)).startswith("removed")
    assert "kept the branch sevenfold/full: 1 commit" in await trees.leave(full)
    assert place.branches() == ["main", "sevenfold/full"]
    assert place.registered() == 1
    assert await trees.tidy() == []


async def test_when_git_cannot_be_run_it_is_kept(place: Place) -> None:
    mine = await left_behind(place, "a1")
    broken = place.trees(program=str(place.root / "absent"))
    [said] = await broken.tidy()
    assert said.startswith(f"kept {mine.path}")
    assert "could not be run" in said
    assert mine.path.exists()


async def test_leaving_is_not_interrupted(place: Place) -> None:
    trees = place.trees()
    mine = await trees.make("a1")
    with anyio.CancelScope() as scope:
        scope.cancel()
        assert (await trees.leave(mine)).startswith("removed")
    assert nothing_left(place)


# --- several at once ----------------------------------------------------------------------------------

ONE_AT_A_TIME = """#!/bin/sh
case "$*" in *"worktree add"*|*"worktree remove"*) ;; *) exec "{git}" "$@" ;; esac
echo >> "{root}/asked"
if ! mkdir "{root}/busy" 2> /dev/null; then
    echo "fatal: failed to read .git/worktrees/x/commondir: Success" >&2; exit 128
fi
"{git}" "$@"; code=$?; sleep 0.05; rmdir "{root}/busy"; exit $code
"""


def fragile_git(place: Place) -> str:
    """Git as it is at its worst: two work trees that are added or removed together break each other."""
    program = place.root / "fragile-git"
    program.write_text(ONE_AT_A_TIME.format(git=GIT, root=place.root), encoding="utf-8")
    program.chmod(0o755)
    return str(program)


async def test_they_are_added_and_removed_one_at_a_time_by_several_sessions_too(place: Place) -> None:
    program = fragile_git(place)
    first, second = place.trees(program=program), place.trees(program=program)
    said: list[str] = []

    async def one(trees: Worktrees, id: str) -> None:
        said.append(await trees.leave(await trees.make(id)))

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(one, first, f"a{number}")
            tasks.start_soon(one, second, f"b{number}")
    assert [text.partition(" ")[0] for text in said] == ["removed"] * 6
    asked = (place.root / "asked").read_text(encoding="utf-8")
    assert asked.count("\n") == 12, "none had to be tried again"
    assert nothing_left(place)


async def test_what_another_git_was_in_the_way_of_is_tried_once_more(place: Place) -> None:
    trees = place.trees(program=fragile_git(place))
    (place.root / "busy").mkdir()

    async def over() -> None:
        while not (place.root / "asked").exists():  # noqa: ASYNC110 - another process writes it
            await anyio.sleep(0.005)
        (place.root / "busy").rmdir()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(over)
        mine = await trees.make("a1")
    assert (mine.path / "a.txt").exists()


async def test_one_that_holds_the_lock_for_too_long_is_named(place: Place) -> None:
    fcntl = pytest.importorskip("fcntl")
    with (place.root / "trees.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StorageFailure, match=r"trees\.lock is held by another process"):
            await place.trees(seconds=0.2).make("a1")
    assert (await place.trees().make("a2")).path.is_dir()


# --- what was left behind -----------------------------------------------------------------------------

CRASH = """
import anyio, os, sys
from pathlib import Path
from sevenfold.layers.l7_agents.worktrees import Worktrees
async def main():
    trees = Worktrees(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], dict(os.environ), trusted=True)
    clean, dirty = await trees.make("clean"), await trees.make("dirty")
    (dirty.path / "work.txt").write_text("work", encoding="utf-8")
    print("made", flush=True)
    if sys.argv[4] == "die":
        os._exit(1)
    sys.stdin.read()
anyio.run(main)
"""


def other_process(place: Place, what: str) -> subprocess.Popen[str]:
    assert GIT is not None
    process = subprocess.Popen(
        [sys.executable, "-c", CRASH, str(place.tree), str(place.folder), GIT, what],
        env=place.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "made\n"
    return process


async def left_behind(place: Place, id: str) -> Worktree:
    """One whose process died: its lock went with it."""
    mine = await place.trees().make(id)
    record = place.folder / f"{id}.json"
    shutil.copy(record, place.folder / "copy")
    record.unlink()
    (place.folder / "copy").rename(record)
    return mine


async def test_what_a_crash_left_is_found_and_treated_by_the_same_rule(place: Place) -> None:
    with other_process(place, "die") as process:
        process.wait()
    removed, kept = await place.trees().tidy()
    assert removed.startswith(f"removed {place.folder / 'clean'}")
    assert kept.startswith(f"kept {place.folder / 'dirty'}")
    assert "work.txt" in kept
    (place.folder / "dirty" / "work.txt").unlink()
    [removed] = await place.trees().tidy()
    assert removed.startswith(f"removed {place.folder / 'dirty'}")
    assert nothing_left(place)


async def test_that_one_stays_is_said_once_and_never_when_its_agent_said_so(place: Place) -> None:
    crashed = await left_behind(place, "crashed")
    place.write("work.txt", "work", crashed.path)
    trees = place.trees()
    finished = await trees.make("finished")
    place.write("work.txt", "work", finished.path)
    assert (await trees.leave(finished)).startswith("kept")
    assert [str(crashed.path) in said for said in await place.trees().tidy()] == [True]
    assert await place.trees().tidy() == []
    assert crashed.path.is_dir()
    assert finished.path.is_dir()


async def test_one_that_somebody_works_in_is_not_tidied_away(place: Place) -> None:
    """Also by an agent of this very process, and one that begins while others are looked at."""
    for id in ("a1", "a2"):
        await left_behind(place, id)
    trees = place.trees()
    working = await trees.make("a0")
    said: list[str] = []
    async with anyio.create_task_group() as tasks:

        async def tidy() -> None:
            said.extend(await trees.tidy())

        tasks.start_soon(tidy)
        while (place.folder / "a1").exists():  # noqa: ASYNC110 - git removes it
            await anyio.sleep(0.001)
        resumed = await trees.take_up("a2")
    assert working.path.is_dir()
    if resumed is None:  # tidying was first: then it is gone, and said to be
        assert len(said) == 2
        resumed = await trees.make("a2")
    assert resumed.path.is_dir()
    assert await trees.tidy() == []


async def test_one_that_is_in_use_is_not_taken_up_a_second_time(place: Place) -> None:
    trees = place.trees()
    await trees.make("a1")
    assert await trees.take_up("a1") is None


async def test_where_nobody_trusts_the_project_nothing_is_tidied(place: Place) -> None:
    mine = await left_behind(place, "a1")
    assert await place.trees(trusted=False).tidy() == []
    assert await place.trees(program=None).tidy() == []
    assert mine.path.is_dir()


async def test_what_another_session_is_working_in_is_not_touched(place: Place) -> None:
    with other_process(place, "live") as process:
        trees = place.trees()
        assert await trees.tidy() == []
        there = Worktree("clean", place.folder / "clean", "sevenfold/clean", "")
        assert "somebody else is in" in await trees.leave(there)
        assert await trees.take_up("clean") is None
        process.communicate("")
    assert len(await trees.tidy()) == 2


async def test_one_that_was_never_finished_is_removed_whatever_it_looks_like(place: Place) -> None:
    mine = await left_behind(place, "a1")
    (mine.path / "a.txt").unlink()  # as when the process died while git wrote the files
    record = place.folder / "a1.json"
    record.write_text(record.read_text(encoding="utf-8").replace("true", "false"), encoding="utf-8")
    assert await place.trees().tidy() == [f"removed {mine.path}, which was never finished"]
    assert nothing_left(place)


async def test_one_that_was_never_finished_and_does_not_go_is_not_said_to_be_gone(place: Place) -> None:
    mine = await left_behind(place, "a1")
    record = place.folder / "a1.json"
    record.write_text(record.read_text(encoding="utf-8").replace("true", "false"), encoding="utf-8")
    (place.tree / ".git").rename(place.tree / "elsewhere")
    [said] = await place.trees().tidy()
    assert said.startswith(f"kept {mine.path}")
    assert "could not be removed" in said


async def test_a_damaged_record_is_left_alone_and_one_of_nothing_is_dropped(place: Place) -> None:
    trees = place.trees()
    place.folder.mkdir()
    (place.folder / "empty.json").touch()
    (place.folder / "odd.json").write_text("{", encoding="utf-8")
    (place.folder / "odd").mkdir()
    (place.folder / "not one.json").write_text("{}", encoding="utf-8")
    assert await trees.tidy() == []
    assert sorted(path.name for path in place.folder.iterdir()) == ["not one.json", "odd", "odd.json"]


async def test_a_kept_one_can_be_taken_up_again(place: Place) -> None:
    trees = place.trees()
    mine = await trees.make("a1")
    place.write("work.txt", "work", mine.path)
    await trees.leave(mine)
    assert await trees.take_up("a1") == replace(mine, told=True)
    assert await place.trees().tidy() == []
    assert await trees.take_up("absent") is None


# --- several in one ---------------------------------------------------------------------------------------


async def test_one_stays_while_anybody_works_in_it(place: Place) -> None:
    trees = place.trees()
    mine = await trees.make("a1")
    assert await trees.join(mine.path, "a2") == mine
    assert await trees.join(mine.path, "a3") == mine

    assert await trees.leave(mine, "a2") == "", "a guest has nothing to tell"
    told = await trees.leave(mine)
    assert told.startswith(f"kept {mine.path} on the branch sevenfold/a1: another agent works in it")
    assert mine.path.is_dir()
    assert await place.trees().tidy() == [], "another session does not take it for left behind"

    assert (await trees.leave(mine, "a3")).startswith("removed")
    assert nothing_left(place)


async def test_the_last_one_out_says_what_is_left_in_it(place: Place) -> None:
    trees = place.trees()
    mine = await trees.make("a1")
    await trees.join(mine.path, "a2")
    await trees.leave(mine)
    place.write("new.txt", "mine\n", at=mine.path)

    told = await trees.leave(mine, "a2")

    assert told.startswith(f"kept {mine.path}")
    assert "not committed: new.txt" in told


async def test_one_that_was_kept_can_be_joined_again_and_nothing_else_can(place: Place) -> None:
    trees = place.trees()
    mine = await trees.make("a1")
    place.write("new.txt", "mine\n", at=mine.path)
    await trees.leave(mine)

    again = await trees.join(mine.path, "a2")
    assert again is not None
    assert again.path == mine.path
    assert await place.trees().join(mine.path, "b1") is None, "somebody of another process is in it"
    assert await trees.join(place.folder / "never", "a2") is None
    assert await trees.join(place.tree, "a2") is None
    (mine.path / "new.txt").unlink()
    assert (await trees.leave(again, "a2")).startswith("removed")
    assert await trees.join(mine.path, "a2") is None
    assert nothing_left(place)
