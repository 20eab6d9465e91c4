"""A repository that somebody prepared: nothing leaves the folder, nothing runs, and work goes on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from memory.team.clones import Clone, alike, environment, git, remote_of, settle, team_of

from sevenfold.core.errors import Refused
from sevenfold.memory.team.git import GitFailed, RemoteAddress, TeamGit
from sevenfold.memory.team.repository import LARGEST, TeamRepository, walk_tree

pytestmark = pytest.mark.real


def blob(remote: Path, data: bytes) -> str:
    return git(remote, "hash-object", "-w", "--stdin", given=data)


def tree(remote: Path, entries: list[tuple[str, str, bytes]]) -> str:
    """A raw tree with any names: mktree would refuse some of them."""
    order = sorted(entries, key=lambda one: one[2] + (b"/" if one[0] == "40000" else b""))
    raw = b"".join(mode.encode() + b" " + name + b"\0" + bytes.fromhex(id) for mode, id, name in order)
    return git(remote, "hash-object", "-t", "tree", "-w", "--literally", "--stdin", given=raw)


def publish(remote: Path, root: str, *parents: str) -> None:
    words = [word for parent in parents for word in ("-p", parent)]
    git(remote, "update-ref", "refs/heads/main", git(remote, "commit-tree", root, *words, "-m", "x"))


def kept(top: Path) -> set[Path]:
    return {path for path in top.rglob("*") if path.suffix == ".md" or "pwned" in path.name}


def hostile(top: Path) -> Path:
    """Everything that a tree should not have, beside one good file."""
    remote = remote_of(top)
    git(remote, "init", "--bare", "-q", "--initial-branch=main")
    good = blob(remote, b"---\nname: good\ndescription: Good\ntype: project\n---\n\nA fact.\n")
    evil = blob(remote, b"PWNED\n")
    link = blob(remote, b"../../outside.md")
    inner = tree(remote, [("100644", evil, b"outside.md"), ("100644", evil, b"..")])
    sub = tree(remote, [("100644", good, b"deep.md"), ("40000", inner, b"..")])
    names = [b"GOOD.MD", b"Good.md", b"con.md", b"a\\b.md", b"c:d.md", b"x\x1b[2J.md", b"\xff.md"]
    names += [b".hidden.md", b"-rf.md", "ｅvil．md".encode(), "e\u0301.md".encode(), b"pic.png"]
    entries = [("100644", evil, name) for name in names]
    entries += [
        ("100644", good, b"good.md"),
        ("120000", link, b"link.md"),
        ("120000", link, b"linked"),
        ("160000", "1" * 40, b"module.md"),
        ("40000", inner, b".."),
        ("40000", inner, b".git"),
        ("40000", inner, b"."),
        ("40000", sub, b"sub"),
        ("100644", evil, b"/etc/absolute.md"),
        ("100644", blob(remote, b"*.md filter=evil\n"), b".gitattributes"),
        ("100644", blob(remote, b"[submodule]\n"), b".gitmodules"),
        ("100644", blob(remote, b"x" * 5_000_000), b"huge.md"),
        ("100644", blob(remote, b"\xff\xfe\0binary"), b"binary.md"),
    ]
    publish(remote, tree(remote, entries))
    return remote


def test_of_a_hostile_tree_only_the_good_files_are_taken_and_the_rest_is_named(tmp_path: Path) -> None:
    remote = hostile(tmp_path)
    before = kept(tmp_path)
    ann = Clone(tmp_path, "ann")

    synced = ann.team.join(str(remote), tmp_path)

    assert synced.offline is None
    assert set(synced.pulled) == {"-rf.md", "Good.md", "sub/deep.md"}
    assert {path.relative_to(ann.folder).as_posix() for path in kept(tmp_path) - before} == {
        *synced.pulled,
        "MEMORY.md",
    }
    reasons = {one.file: one.why for one in synced.refused}
    assert reasons["link.md"] == "it is a symbolic link"
    assert reasons["module.md"] == "it is a submodule"
    assert "5,000,000 bytes" in reasons["huge.md"]
    assert reasons["binary.md"] == "it is not text in UTF-8"
    assert len(reasons) >= 20
    assert all(name.isprintable() for name in reasons)


def test_what_is_not_taken_stays_in_the_remote_byte_for_byte(tmp_path: Path) -> None:
    remote = hostile(tmp_path)
    ann = Clone(tmp_path, "ann")
    ann.team.join(str(remote), tmp_path)
    listed = git(remote, "ls-tree", "-z", "main").split("\0")
    ann.say("mine.md", "x")
    ann.say("sub/mine.md", "y")
    (ann.folder / "link.md").write_text("I am no link", "utf-8")

    synced = ann.team.sync()

    assert synced.offline is None
    assert synced.pushed == ("mine.md", "sub/mine.md")
    assert any(one.file == "link.md" and one.side == "here" for one in synced.refused)
    now = git(remote, "ls-tree", "-z", "main").split("\0")
    gone = [line for line in listed if line not in now]
    assert [line.partition("\t")[2] for line in gone] == ["MEMORY.md", "sub"]
    assert "deep.md" in git(remote, "ls-tree", "--name-only", "main:sub")


def test_a_newcomer_does_not_take_the_name_of_a_file_that_is_known(tmp_path: Path) -> None:
    [ann] = team_of(tmp_path, "ann")
    remote = remote_of(tmp_path)
    lines = git(remote, "ls-tree", "main") + f"\n100644 blob {blob(remote, b'x')}\tFIRST.md\n"
    publish(remote, git(remote, "mktree", given=lines.encode()), "main")
    synced = ann.sync()
    assert [one.file for one in synced.refused] == ["FIRST.md"]
    assert ann.topics() == {"first.md"}


def test_a_tree_of_many_files_is_taken_up_to_the_limit(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob", most=40)
    remote = remote_of(tmp_path)
    good = blob(remote, b"A fact.\n")
    lines = git(remote, "ls-tree", "main").splitlines()
    lines += [f"100644 blob {good}\tn{number:05}.md" for number in range(2_000)]
    root = git(remote, "mktree", given="\n".join([*lines, ""]).encode())
    publish(remote, root, "main")

    synced = ann.sync()

    assert len(synced.pulled) == 38
    assert "first.md" in ann.files()
    assert synced.more_refused + len(synced.refused) == 2_000 - 38
    assert "more than 40 files" in synced.refused[0].why
    ann.say("first.md", "The team goes on.")
    settle([ann, bob])
    assert len(git(remote, "ls-tree", "--name-only", "main").splitlines()) == 2_002
    assert "goes on" in bob.read("first.md")


def test_a_tree_that_unfolds_without_end_is_not_followed(tmp_path: Path) -> None:
    [ann] = team_of(tmp_path, "ann")
    remote = remote_of(tmp_path)
    inner = tree(remote, [("100644", blob(remote, b"x"), b"f%d.md" % n) for n in range(10)])
    for _ in range(10):
        inner = tree(remote, [("40000", inner, b"d%d" % n) for n in range(10)])
    root = git(remote, "ls-tree", "main") + f"\n040000 tree {inner}\tbomb\n"
    publish(remote, git(remote, "mktree", given=root.encode()), "main")

    synced = ann.sync()

    assert any("more than 100,000 files" in one.why for one in synced.refused)
    assert "first.md" in ann.files()
    ann.say("mine.md", "x")
    assert ann.sync().pushed == ("mine.md",)
    assert "bomb" in git(remote, "ls-tree", "--name-only", "main")


def test_a_remote_that_sends_without_end_is_cut_off(tmp_path: Path) -> None:
    remote = remote_of(tmp_path)
    git(remote, "init", "--bare", "-q")
    noise = random.Random(1).randbytes(3_000_000)
    publish(remote, tree(remote, [("100644", blob(remote, noise), b"noise.bin")]))
    program = TeamGit(tmp_path / "ours", tmp_path / "state", environment(tmp_path), largest=1 << 20)
    ours = TeamRepository(tmp_path / "ours", program)
    ours.prepare()
    with pytest.raises(GitFailed, match="sends more than a team memory can be"):
        ours.fetch(RemoteAddress(str(remote), str(remote)), "main")
    ours.prepare()
    assert sum(path.stat().st_size for path in (tmp_path / "ours").rglob("*")) < 1 << 20


def test_what_was_huge_in_the_past_is_never_fetched(tmp_path: Path) -> None:
    [ann] = team_of(tmp_path, "ann")
    remote = remote_of(tmp_path)
    old = git(remote, "rev-parse", "main^{tree}")
    noise = bytes(range(256)) * 4_000
    huge = blob(remote, b"".join(bytes([n]) + noise[n:] for n in range(8)))
    publish(remote, tree(remote, [("100644", huge, b"huge.bin")]), "main")
    publish(remote, old, "main")
    bob = Clone(tmp_path, "bob")
    bob.team.join(str(remote), tmp_path)
    assert huge not in git(bob.repository, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    assert alike([ann, bob])


def test_a_link_in_the_own_folder_is_neither_followed_nor_taken_for_a_removal(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    ann.say("a.md", "Shared words")
    settle([ann, bob])
    outside = tmp_path / "outside.md"
    outside.write_text("Private words\n", "utf-8")
    bob.remove("a.md")
    (bob.folder / "a.md").symlink_to(outside)
    ann.say("a.md", "Other words")
    ann.sync()

    synced = bob.sync()

    assert "symbolic link" in next(one.why for one in synced.refused if one.file == "a.md")
    assert outside.read_text("utf-8") == "Private words\n"
    ann.sync()
    assert "Other words" in ann.read("a.md")


def test_a_folder_of_the_team_that_is_a_link_is_refused(tmp_path: Path) -> None:
    ann, _ = team_of(tmp_path, "ann", "bob")
    elsewhere = tmp_path / "elsewhere"
    ann.folder.rename(elsewhere)
    ann.folder.symlink_to(elsewhere)
    with pytest.raises(Refused, match="symbolic link"):
        ann.team.sync()


def test_no_program_that_a_repository_or_a_setting_names_is_run(tmp_path: Path) -> None:
    ann, bob = team_of(tmp_path, "ann", "bob")
    script = tmp_path / "run"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/pwned-$$\n", "utf-8")
    script.chmod(0o755)
    for repository in (bob.repository, remote_of(tmp_path)):
        for name in ("core.fsmonitor", "filter.evil.smudge", "uploadpack.packObjectsHook"):
            git(repository, "config", name, str(script))
    hooks = bob.repository / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("pre-push", "post-checkout", "reference-transaction", "post-merge"):
        (hooks / name).symlink_to(script)
    ann.say("a.md", "x")
    bob.say("b.md", "y")
    settle([ann, bob])
    assert list(tmp_path.glob("pwned*")) == []


def test_a_folder_with_millions_of_names_is_not_read_and_nothing_of_ours_is_lost(tmp_path: Path) -> None:
    [ann] = team_of(tmp_path, "ann")
    remote = remote_of(tmp_path)
    one = bytes.fromhex(blob(remote, b"x"))
    raw = b"".join(b"100644 %06d.md\0%s" % (n, one) for n in range(LARGEST // 37 + 1))
    wide = git(remote, "hash-object", "-t", "tree", "-w", "--literally", "--stdin", given=raw)
    publish(remote, tree(remote, [("40000", wide, b"wide")]), "main")
    ann.say("mine.md", "x")

    synced = ann.sync()

    assert any("more than 4,194,304 bytes of names" in one.why for one in synced.refused)
    assert "mine.md" in synced.pushed
    assert git(remote, "rev-parse", "main:wide") == wide

    publish(remote, wide, "main")
    ann.say("more.md", "x")
    synced = ann.sync()
    assert not synced.pushed
    assert "nobody knows what the team has there" in next(
        one.why for one in synced.refused if one.file == "more.md"
    )
    assert ann.topics() >= {"mine.md", "more.md"}


def test_a_walk_reads_no_large_folder_and_ends_when_it_is_told_to() -> None:
    def read(ids: Sequence[str]) -> dict[str, bytes]:
        raise AssertionError(ids)

    found = walk_tree("1" * 40, lambda ids: {}, lambda ids: dict.fromkeys(ids, 1 << 30))
    assert found.unread == {b""}

    def stop() -> None:
        raise GitFailed("stopped")

    raws = {"1" * 40: b"".join(b"40000 %d\0" % n + b"2" * 20 for n in range(9))}
    with pytest.raises(GitFailed, match="stopped"):
        walk_tree("1" * 40, lambda ids: raws, lambda ids: dict.fromkeys(ids, 1), stop)
    assert walk_tree("1" * 40, read, lambda ids: {}).cut == "a folder in it is missing"
