"""Where things lie: projects, worktrees, hostile claims, slugs, sessions."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.core.errors import Mistake, SessionBusy, SessionNotFound
from sevenfold.core.messages import assistant, user
from sevenfold.core.transcript import Mark, Transcript
from sevenfold.storage.jsonl import JsonlLog
from sevenfold.storage.places import (
    LONGEST_SLUG,
    PEEK,
    ProjectPaths,
    Scope,
    check_session_id,
    claim_places,
    find_places,
    find_session,
    hash_text,
    list_sessions,
    make_path_slug,
    make_session_id,
    remove_session,
)

HOME = Path("home/me/.sevenfold")


def repository(folder: Path) -> Path:
    """A folder that git would take for a repository."""
    for name in ("objects", "refs"):
        (folder / ".git" / name).mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    return folder


def worktree(main: Path, folder: Path) -> Path:
    """A second working folder of a repository, as git would lay it out."""
    own = main / ".git" / "worktrees" / folder.name
    own.mkdir(parents=True)
    folder.mkdir(parents=True)
    (folder / ".git").write_text(f"gitdir: {own}\n", encoding="utf-8")
    (own / "commondir").write_text("../..\n", encoding="utf-8")
    (own / "gitdir").write_text(f"{folder / '.git'}\n", encoding="utf-8")
    return folder


def places(start: Path, tmp_path: Path, scope: Scope = "repository") -> ProjectPaths:
    return find_places(start, tmp_path / HOME, scope, user_home=tmp_path / "home/me")


# --- which project ----------------------------------------------------------------------------------


def test_anywhere_inside_a_repository_is_that_repository(tmp_path: Path) -> None:
    main = repository(tmp_path / "repo")
    (main / "src/deep").mkdir(parents=True)
    found = places(main / "src/deep", tmp_path)
    assert (found.root, found.tree, found.note) == (main, main, "")
    assert found.project == tmp_path / HOME / "projects" / make_path_slug(main)
    assert found.memory == found.project / "memory"


def test_a_folder_without_a_repository_is_its_own_project(tmp_path: Path) -> None:
    (tmp_path / "notes/today").mkdir(parents=True)
    (tmp_path / "notes/.git").mkdir()  # nothing in it: git takes no notice of it either
    assert places(tmp_path / "notes/today", tmp_path).root == tmp_path / "notes/today"


def test_a_link_to_a_project_is_the_project(tmp_path: Path) -> None:
    main = repository(tmp_path / "repo")
    (tmp_path / "link").symlink_to(main)
    assert places(tmp_path / "link", tmp_path).root == main


def test_a_worktree_shares_the_project_and_keeps_its_own_files(tmp_path: Path) -> None:
    main = repository(tmp_path / "repo")
    second = worktree(main, tmp_path / "feature")
    found = places(second, tmp_path)
    assert (found.root, found.tree, found.note) == (main, second, "")
    assert found.slug == places(main, tmp_path).slug


def test_a_worktree_with_relative_pointers_counts_too(tmp_path: Path) -> None:
    main = repository(tmp_path / "repo")
    second = worktree(main, tmp_path / "feature")
    own = main / ".git/worktrees/feature"
    (second / ".git").write_text("gitdir: ../repo/.git/worktrees/feature", encoding="utf-8")
    (own / "gitdir").write_text("../../../../feature/.git\n", encoding="utf-8")
    assert places(second, tmp_path).root == main


def test_scopes_choose_between_repository_worktree_folder_and_user(tmp_path: Path) -> None:
    main = repository(tmp_path / "repo")
    second = worktree(main, tmp_path / "feature")
    (second / "src").mkdir()
    (tmp_path / "home/me").mkdir(parents=True)
    roots = {
        scope: places(second / "src", tmp_path, scope).root
        for scope in ("repository", "worktree", "folder", "user")
    }
    assert roots == {
        "repository": main,
        "worktree": second,
        "folder": second / "src",
        "user": tmp_path / "home/me",
    }
    with pytest.raises(Mistake, match="no scope"):
        places(main, tmp_path, "planet")  # type: ignore[arg-type]


def test_started_in_the_home_folder_the_scope_is_user_and_that_is_said(tmp_path: Path) -> None:
    me = repository(tmp_path / "home/me")
    found = places(me, tmp_path)
    assert found.scope == "user"
    assert "home folder" in found.note
    (me / "Desktop").mkdir()
    below = places(me / "Desktop", tmp_path)
    assert (below.scope, below.root) == ("repository", me)
    assert "whole home folder" in below.note


def test_a_folder_that_is_not_there_is_a_mistake_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="is not a folder; name the project's folder with --project"):
        places(tmp_path / "missing", tmp_path)


# --- claims that are not believed -------------------------------------------------------------------


def claims(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / ".git").write_text(text, encoding="utf-8")
    return folder


def test_a_git_file_that_claims_a_worktree_of_another_repository_is_ignored_and_reported(
    tmp_path: Path,
) -> None:
    victim = repository(tmp_path / "victim")
    worktree(victim, tmp_path / "genuine")
    evil = claims(tmp_path / "evil", f"gitdir: {victim / '.git/worktrees/genuine'}\n")
    found = places(evil, tmp_path)
    assert (found.root, found.tree) == (evil, evil)
    assert f"{evil / '.git'} claims to belong to {victim}" in found.note


def test_a_forged_worktree_folder_is_ignored_and_reported(tmp_path: Path) -> None:
    victim = repository(tmp_path / "victim")
    evil = claims(tmp_path / "evil", "gitdir: forged\n")
    (evil / "forged").mkdir()
    (evil / "forged/commondir").write_text(str(victim / ".git"), encoding="utf-8")
    (evil / "forged/gitdir").write_text(str(evil / ".git"), encoding="utf-8")
    found = places(evil, tmp_path)
    assert found.root == evil
    assert "does not know of it" in found.note


def test_a_forged_repository_that_names_another_folder_as_its_own_gains_nothing(tmp_path: Path) -> None:
    victim = repository(tmp_path / "victim")
    evil = claims(tmp_path / "evil", "gitdir: shared/worktrees/w\n")
    own = evil / "shared/worktrees/w"
    own.mkdir(parents=True)
    (own / "commondir").write_text("../..", encoding="utf-8")
    (own / "gitdir").write_text(str(evil / ".git"), encoding="utf-8")
    (evil / "shared/config").write_text(f"[core]\n\tworktree = {victim}\n", encoding="utf-8")
    assert places(evil, tmp_path).root == evil / "shared"


def test_a_git_file_that_names_the_folder_of_another_repository_is_reported(tmp_path: Path) -> None:
    victim = repository(tmp_path / "victim")
    evil = claims(tmp_path / "evil", f"gitdir: {victim / '.git'}\n")
    found = places(evil, tmp_path)
    assert found.root == evil
    assert f"claims to belong to {victim}" in found.note


@pytest.mark.parametrize(
    "text", ["", "gitdir:\n", "nonsense", "gitdir: /nowhere/at/all\n", "gitdir: a\0b", "x" * 99_999]
)
def test_a_git_file_that_makes_no_sense_ends_the_search_and_is_reported(tmp_path: Path, text: str) -> None:
    """It must not pass for a part of the repository around it."""
    around = repository(tmp_path / "around")
    found = places(claims(around / "vendor/odd", text), tmp_path)
    assert found.root == around / "vendor/odd"
    assert "ignored" in found.note


def test_a_worktree_that_was_moved_by_hand_is_its_own_project_until_git_knows(tmp_path: Path) -> None:
    main = repository(tmp_path / "repo")
    worktree(main, tmp_path / "feature").rename(tmp_path / "moved")
    found = places(tmp_path / "moved", tmp_path)
    assert found.root == tmp_path / "moved"
    assert "does not know of it" in found.note


@pytest.mark.real
def test_what_git_itself_makes_is_understood(tmp_path: Path) -> None:
    if not shutil.which("git"):
        pytest.skip("git is not installed")

    allowed = ("-c", "protocol.file.allow=always")

    def git(*args: str, at: Path) -> None:
        subprocess.run(
            ["git", "-c", "user.name=n", "-c", "user.email=e@x", *allowed, *args],
            cwd=at,
            check=True,
            capture_output=True,
        )

    main, part, bare = tmp_path / "main", tmp_path / "part", tmp_path / "bare.git"
    for folder in (main, part):
        folder.mkdir()
        git("init", at=folder)
        git("commit", "--allow-empty", "-m", "first", at=folder)
    git("worktree", "add", str(tmp_path / "wt"), at=main)
    git("submodule", "add", str(part), "sub", at=main)
    git("worktree", "add", str(tmp_path / "sub-wt"), at=main / "sub")
    git("clone", "--bare", str(main), str(bare), at=tmp_path)
    git("worktree", "add", str(tmp_path / "bare-wt"), "-b", "other", at=bare)
    git("init", "--separate-git-dir", str(tmp_path / "elsewhere"), str(tmp_path / "apart"), at=main)
    roots = {
        name: (found.root, found.note)
        for name in ("main", "wt", "main/sub", "sub-wt", "bare-wt", "apart")
        for found in [places(tmp_path / name, tmp_path)]
    }
    assert roots == {
        "main": (main, ""),
        "wt": (main, ""),
        "main/sub": (main / "sub", ""),
        "sub-wt": (main / "sub", ""),
        "bare-wt": (bare, ""),
        "apart": (tmp_path / "apart", ""),
    }


# --- slugs ------------------------------------------------------------------------------------------


def test_a_slug_keeps_letters_and_digits_only() -> None:
    assert make_path_slug(Path("/Users/me/my_app.v2")) == "-Users-me-my-app-v2"


def test_a_slug_counts_characters_as_utf16_does() -> None:
    assert make_path_slug(Path("/a/é/日/😀")) == "-a" + "-" * 7


def test_a_composed_and_a_decomposed_name_are_the_same_project() -> None:
    assert make_path_slug(Path("/a/é")) == make_path_slug(Path("/a/e\u0301"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", "0"), ("a", "2p"), ("/Users/me", "cdcm6m"), ("polygenelubricants", "zik0zk")],
)
def test_the_hash_is_the_32_bit_one_in_base_36(text: str, expected: str) -> None:
    """The last one hashes to the smallest 32-bit number, whose absolute value needs 33 bits."""
    assert hash_text(text) == expected


def test_a_long_slug_is_cut_and_told_apart_by_its_hash() -> None:
    one, two = Path("/" + "x" * 250 + "/a"), Path("/" + "x" * 250 + "/b")
    assert make_path_slug(one)[:LONGEST_SLUG] == make_path_slug(two)[:LONGEST_SLUG] == "-" + "x" * 199
    assert (
        make_path_slug(one) == f"{make_path_slug(one)[:200]}-{hash_text(str(one))}" != make_path_slug(two)
    )
    assert make_path_slug(Path("/" + "x" * 199)) == "-" + "x" * 199


@given(st.text(st.characters(exclude_characters="\0"), max_size=300))
def test_any_path_gives_a_name_that_every_file_system_takes(text: str) -> None:
    slug = make_path_slug(Path("/" + text))
    assert len(slug) <= LONGEST_SLUG + 8
    assert all(c == "-" or (c.isascii() and c.isalnum()) for c in slug)


def test_two_projects_with_the_same_slug_get_folders_of_their_own(tmp_path: Path) -> None:
    one, two = tmp_path / "my.app", tmp_path / "my-app"
    one.mkdir()
    two.mkdir()
    first = claim_places(places(one, tmp_path))
    second = claim_places(places(two, tmp_path))
    assert first.project.name == make_path_slug(one) == make_path_slug(two)
    assert second.project.name == f"{make_path_slug(two)}-{hash_text(str(two))}"
    assert [claim_places(places(p, tmp_path)).project for p in (one, two)] == [
        first.project,
        second.project,
    ]
    assert json.loads((first.project / "root.json").read_bytes()) == {"root": str(one)}
    assert stat.S_IMODE(first.project.stat().st_mode) == 0o700
    assert stat.S_IMODE((first.project / "root.json").stat().st_mode) == 0o600


def test_looking_writes_nothing_and_a_project_that_was_faster_keeps_its_folder(tmp_path: Path) -> None:
    one, two = tmp_path / "my.app", tmp_path / "my-app"
    one.mkdir()
    two.mkdir()
    looked = places(one, tmp_path), places(two, tmp_path)
    assert looked[0].project == looked[1].project
    assert not (tmp_path / "home").exists()
    assert claim_places(looked[1]).project == looked[1].project
    assert claim_places(looked[0]).project.name == f"{make_path_slug(one)}-{hash_text(str(one))}"


def test_three_projects_whose_names_and_hashes_are_alike_still_differ(tmp_path: Path) -> None:
    """ "Aa" and "BB" have the same hash; a dot and a dash make the same slug."""
    root = tmp_path / "x"
    root.mkdir()
    found = places(root, tmp_path)
    for slug in (make_path_slug(root), f"{make_path_slug(root)}-{hash_text(str(root))}"):
        folder = tmp_path / HOME / "projects" / slug
        folder.mkdir(parents=True)
        (folder / "root.json").write_text('{"root": "/another"}', encoding="utf-8")
    third = claim_places(found)
    assert third.slug.startswith(f"{make_path_slug(root)}-")
    assert json.loads((third.project / "root.json").read_bytes()) == {"root": str(root)}
    assert claim_places(places(root, tmp_path)).project == third.project


@pytest.mark.parametrize("record", ["", "{", "[]", '{"root": 3}', "{}"])
def test_a_broken_record_is_mended_and_said(tmp_path: Path, record: str) -> None:
    root = tmp_path / "x"
    root.mkdir()
    folder = tmp_path / HOME / "projects" / make_path_slug(root)
    folder.mkdir(parents=True)
    (folder / "root.json").write_text(record, encoding="utf-8")
    found = places(root, tmp_path)
    assert "did not say whose folder this is" in found.note
    assert claim_places(found).project == folder
    assert places(root, tmp_path).note == ""


def test_a_folder_whose_name_is_no_text_is_a_project_like_any_other(tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    odd.mkdir()
    claimed = claim_places(places(odd, tmp_path))
    assert claimed.project == claim_places(places(odd, tmp_path)).project
    assert claimed.project.name.endswith("-caf-")


# --- sessions ---------------------------------------------------------------------------------------


def test_session_ids_sort_by_time_and_are_valid() -> None:
    ids = [make_session_id(t, lambda n: b"\xab" * n) for t in (0.0, 1.001, 1.002, 1_800_000_000.5)]
    assert ids == sorted(ids)
    assert ids[-1] == "20270115-080000500-ababab"
    assert [check_session_id(i) for i in ids] == ids
    assert make_session_id(5.0) != make_session_id(5.0)


@pytest.mark.parametrize(
    "bad", ["", "..", ".", "a/b", "../x", "a\\b", "-rf", ".hidden", "a\0", "x" * 129, "memory", "CON", "a."]
)
def test_an_id_that_could_name_another_file_is_refused(tmp_path: Path, bad: str) -> None:
    (tmp_path / "p").mkdir()
    found = places(tmp_path / "p", tmp_path)
    for use in (found.session_file, found.session_folder):
        with pytest.raises(SessionNotFound, match="cannot be a session id"):
            use(bad)


@pytest.fixture
def project(tmp_path: Path) -> ProjectPaths:
    (tmp_path / "p").mkdir()
    return claim_places(places(tmp_path / "p", tmp_path))


def write_session(project: ProjectPaths, id: str, at: float, prompt: str, title: str = "") -> Path:
    path = project.session_file(id)
    with JsonlLog(path) as log:
        transcript = Transcript(lambda: at, log.append)
        transcript.add(Mark("session", {"format": 1}), by="session")
        transcript.add(user("attached by a layer"), by="notes")
        transcript.add(user(prompt))
        transcript.add(assistant(), by="model")
        if title:
            transcript.add(Mark("title", "an older title"), by="notes")
            transcript.add(Mark("title", title), by="notes")
    os.utime(path, (at, at))
    return path


def test_sessions_are_listed_newest_first_with_what_they_are_about(project: ProjectPaths) -> None:
    write_session(project, "one", 100, "fix the\n  failing test")
    write_session(project, "two", 300, "something", title="Refactor the parser")
    write_session(project, "three", 200, "x" * 500)
    project.session_file("empty").touch()
    os.utime(project.session_file("empty"), (50, 50))
    (project.project / "one.jsonl.torn").touch()
    (project.project / "link.jsonl").symlink_to(project.session_file("one"))
    found = list_sessions(project)
    assert [(s.id, s.at) for s in found] == [("two", 300), ("three", 200), ("one", 100), ("empty", 50)]
    assert [s.title for s in found] == ["Refactor the parser", "x" * 99 + "…", "fix the failing test", ""]
    assert found[2].size == project.session_file("one").stat().st_size


def test_a_title_at_the_end_of_a_long_session_is_found(project: ProjectPaths) -> None:
    write_session(project, "long", 1, "y" * (3 * PEEK), title="At the end")
    assert list_sessions(project)[0].title == "At the end"


@pytest.mark.parametrize("around", range(-8, 9))
def test_a_first_prompt_longer_than_what_is_read_still_names_the_session(
    project: ProjectPaths, around: int
) -> None:
    write_session(project, "big", 1, 'do "this" \\ 😀\n' + "ü\\\n" * (PEEK // 6 + around))
    assert list_sessions(project)[0].title.startswith('do "this" \\ 😀 ü')


def test_a_session_file_full_of_rubbish_is_listed_without_a_title(project: ProjectPaths) -> None:
    project.session_file("junk").write_bytes(b'\x00\xff{"what":3}\n[' * 9999)
    assert [(s.id, s.title) for s in list_sessions(project)] == [("junk", "")]


def test_a_project_without_a_folder_has_no_sessions(tmp_path: Path) -> None:
    assert list_sessions(places(tmp_path, tmp_path)) == []


def test_a_session_is_found_by_the_beginning_of_its_id(project: ProjectPaths) -> None:
    one = write_session(project, "20270115-a", 1, "x")
    write_session(project, "20270116-b", 1, "x")
    assert find_session(project, "20270115") == one
    assert find_session(project, "20270115-a") == one
    with pytest.raises(SessionNotFound, match=r"beginning of 2 sessions, 20270116-b, 20270115-a"):
        find_session(project, "2027")
    with pytest.raises(SessionNotFound, match="there is no session '2028'"):
        find_session(project, "2028")


def test_a_removed_session_is_gone_with_all_that_belongs_to_it(project: ProjectPaths) -> None:
    path = write_session(project, "old", 1, "x")
    (project.session_folder("old") / "tool-results").mkdir(parents=True)
    (project.session_folder("old") / "tool-results/1.txt").touch()
    with JsonlLog(path), pytest.raises(SessionBusy):
        remove_session(project, "old")
    remove_session(project, "old")
    assert [p.name for p in project.project.iterdir()] == ["root.json"]


_REMOVE_SLOWLY = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from sevenfold.core.errors import SevenfoldError
    from sevenfold.storage.places import find_places, remove_session

    def wait_before_the_lock(event, args):
        if event == "fcntl.flock":
            print("opened", flush=True)
            sys.stdin.readline()

    sys.addaudithook(wait_before_the_lock)
    try:
        remove_session(find_places(Path(sys.argv[1]), Path(sys.argv[2])), "old")
    except SevenfoldError as error:
        print(type(error).__name__)
    """
)


def test_of_two_who_remove_a_session_one_is_told_that_it_has_gone(project: ProjectPaths) -> None:
    path = write_session(project, "old", 1, "x")
    with subprocess.Popen(
        [sys.executable, "-c", _REMOVE_SLOWLY, str(project.root), str(project.home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == "opened\n"
        remove_session(project, "old")
        write_session(project, "old", 2, "y")
        (project.session_folder("old") / "tool-results").mkdir(parents=True)
        assert other.communicate("go\n", timeout=60)[0] == "SessionNotFound\n"
    assert project.session_folder("old").is_dir(), "what is there now is another session's"
    assert path.is_file()
