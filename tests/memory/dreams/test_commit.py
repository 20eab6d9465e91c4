"""A dream's commit: what others wrote stays, nothing is lost without an account, undo is one step."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from memory.dreams.dreamt import ORDERS, Facts, dream, meddle, numbers, populate, texts

from sevenfold.core.clock import SystemClock
from sevenfold.core.errors import Mistake, Refused, StorageFailure
from sevenfold.memory.dreams.commit import commit_dream, preview_dream, undo_dream
from sevenfold.memory.dreams.journal import is_commit_pending
from sevenfold.memory.dreams.losses import LossReason
from sevenfold.memory.dreams.stage import (
    discard_all_stages,
    discard_stage,
    list_waiting_stages,
    open_stage,
    stage_folder,
)
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.merge import merge_lines
from sevenfold.memory.store import MemoryStore

DREAM = Author("dream", "session-1")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    made = MemoryStore(FolderBackend(tmp_path / "memory", tmp_path / "state"), SystemClock())
    made.add(type="user", name="editor", description="Which editor", body="Ann prefers vim over emacs.")
    made.add(
        type="project",
        name="deploys",
        description="How we deploy",
        body="- Deploys happen on Friday at 15:00\n- Carol approves every release\n"
        "- The key is kept in /etc/acme/deploy.toml",
    )
    made.add(
        type="project",
        name="staging",
        description="The staging host",
        body="The staging database listens on port 5432.\n\nSee [[deploys]].",
    )
    yield made
    made.close()


def write(path: Path, name: str, body: str, description: str = "How we run things") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\ndescription: {description}\ntype: project\n---\n\n{body}", "utf-8")


def after(store: MemoryStore) -> str:
    return "\n".join(texts(store.path_of()).values())


# --- the copy -------------------------------------------------------------------------------------------


def test_the_copy_has_what_may_be_dreamt_about_and_the_times_of_the_files(store: MemoryStore) -> None:
    os.utime(store.path_of("editor.md"), (1_700_000_000, 1_700_000_000))
    (store.path_of("logs/2026/03")).mkdir(parents=True)
    (store.path_of("logs/2026/03/2026-03-05.md")).write_text("# 2026-03-05\n\n- 09:00 hello\n", "utf-8")
    (store.path_of("key.md")).write_text("token = ghp_0123456789abcdefghijABCDEFGHIJ012345\n", "utf-8")
    (store.path_of(".hidden.md")).write_text("no", "utf-8")
    (store.path_of("link.md")).symlink_to(store.path_of("editor.md"))
    with (store.path_of("huge.md")).open("wb") as huge:
        huge.truncate(50 << 20)
    staged = stage_folder(store)

    log = "logs/2026/03/2026-03-05.md"
    assert staged.files == ["MEMORY.md", "deploys.md", "editor.md", log, "staging.md"]
    assert sorted(texts(staged.folder)) == staged.files
    assert (staged.folder / "editor.md").stat().st_mtime == 1_700_000_000
    assert staged.folder.stat().st_mode & 0o077 == 0
    assert staged.changes() == []


def test_what_the_dream_was_not_given_is_never_touched(store: MemoryStore) -> None:
    with (store.path_of("huge.md")).open("wb") as huge:
        huge.truncate(50 << 20)
    (store.path_of("picture.png")).write_bytes(b"png")
    staged = stage_folder(store)
    write(staged.folder / "huge.md", "huge", "Deploys happen on Friday at 15:00.")
    outcome = commit_dream(store, staged, DREAM)

    assert (store.path_of("huge.md")).stat().st_size == 50 << 20
    assert (store.path_of("picture.png")).read_bytes() == b"png"
    assert [altered.file for altered in outcome.files] == ["huge-2.md", "MEMORY.md"]


def test_logs_and_the_memories_of_the_team_are_read_only(store: MemoryStore) -> None:
    for file in ("logs/2026/03/2026-03-05.md", "team/rules.md"):
        write(store.path_of() / file, file, "The team decided on 4 spaces.")
    staged = stage_folder(store)
    before = texts(store.path_of())
    (staged.folder / "logs/2026/03/2026-03-05.md").unlink()
    (staged.folder / "team/rules.md").unlink()
    write(staged.folder / "team/secret-plan.md", "plan", "Ann prefers vim over emacs.")
    outcome = commit_dream(store, staged, DREAM)

    assert texts(store.path_of()) == before
    assert len(outcome.conflicts) == 3
    assert outcome.revision == ""


def test_a_file_that_grew_too_large_in_the_dream_stays_as_it_was(store: MemoryStore) -> None:
    staged = stage_folder(store)
    before = texts(store.path_of())
    (staged.folder / "editor.md").write_bytes(b"x " * 200_000)
    (staged.folder / "deploys.md").unlink()
    (staged.folder / "deploys.md").symlink_to("/etc/passwd")

    assert commit_dream(store, staged, DREAM).files == ()
    assert texts(store.path_of()) == before


def test_a_damaged_copy_is_not_taken_over(store: MemoryStore) -> None:
    staged = stage_folder(store)
    (staged.place / "base/editor.md").write_bytes(b"")

    with pytest.raises(StorageFailure, match="discard it and dream again"):
        commit_dream(store, staged, DREAM)


def test_copies_of_dead_processes_go_and_those_that_wait_for_the_user_stay(store: MemoryStore) -> None:
    dead, kept = stage_folder(store), stage_folder(store)
    kept.wait()
    about = dead.place / "dream.json"
    about.write_bytes(about.read_bytes().replace(b'"pid":', b'"pid":1999999999,"was":'))
    new = stage_folder(store)

    assert not dead.place.exists()
    assert list_waiting_stages(store.local) == [kept.id]
    (kept.folder / "new.md").write_text("A new thing about 42 llamas.", "utf-8")
    assert [one.file for one in open_stage(store.local, kept.id).changes()] == ["new.md"]
    discard_stage(new)
    assert not new.place.exists()
    discard_all_stages(store.local)
    assert not kept.place.exists()
    with pytest.raises(Refused, match="no dream"):
        open_stage(store.local, "../../etc")


# --- merging --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("A b c d e", "a b c d E", "A b c d E"),
        ("a b c d", "a b c d e f", "a b c d f"),
        ("a X b c d e", "a b c d Y e", "a X b c d Y e"),
        ("A b c d e", "A b c d e", "A b c d e"),
        ("a b X d e", "a b Y d e", None),
        ("a b X d e", "a b c Y e", None),
        ("a b c d e X", "a b c d e Y", None),
        ("", "a b c d e", ""),
    ],
)
def test_lines_of_both_become_one_text_unless_they_touch(one: str, other: str, both: str | None) -> None:
    def lines(text: str) -> bytes:
        return "".join(f"{word}\n" for word in text.split()).encode()

    if other == "a b c d e f":  # the dream took out a line, a person added one elsewhere
        assert merge_lines(lines("a b c d e"), lines("a c d e"), lines(other)) == lines("a c d e f")
        return
    expected = None if both is None else lines(both)
    assert merge_lines(lines("a b c d e"), lines(one), lines(other)) == expected


def test_what_was_written_meanwhile_stays_and_what_the_dream_did_elsewhere_is_made(
    store: MemoryStore,
) -> None:
    staged = stage_folder(store)
    text = (staged.folder / "deploys.md").read_text("utf-8")
    (staged.folder / "deploys.md").write_text(
        text.replace("Friday at 15:00", "Friday at 15:00 sharp"), "utf-8"
    )
    (staged.folder / "editor.md").unlink()
    write(staged.folder / "people.md", "people", "Ann prefers vim over emacs.\n", "Which editor")
    store.edit("deploys", body=store.get("deploys").body + "\n- Dan is on call until 2026-05-01")
    store.add(type="user", name="shell", description="Which shell", body="Ann uses fish.")
    (store.path_of("people.md")).write_text("People of 2026, by hand.\n", "utf-8")
    outcome = commit_dream(store, staged, DREAM)

    assert "15:00 sharp" in store.get("deploys").body
    assert "Dan is on call until 2026-05-01" in store.get("deploys").body
    assert "Ann uses fish." in store.get("shell").body
    assert (store.path_of("people.md")).read_text("utf-8") == "People of 2026, by hand.\n"
    assert "vim" in (store.path_of("people-2.md")).read_text("utf-8")
    assert [moved.into for moved in outcome.merged] == ["people-2.md"]


def test_where_both_changed_the_same_line_the_persons_stays(store: MemoryStore) -> None:
    staged = stage_folder(store)
    path = staged.folder / "editor.md"
    path.write_text(path.read_text("utf-8").replace("vim", "neovim"), "utf-8")
    store.edit("editor", body="Ann prefers helix over emacs.")
    outcome = commit_dream(store, staged, DREAM)

    assert store.get("editor").body == "Ann prefers helix over emacs."
    assert [one.file for one in outcome.conflicts] == ["editor.md"]


def test_a_file_that_was_changed_meanwhile_is_not_removed_and_one_that_was_removed_does_not_return(
    store: MemoryStore,
) -> None:
    staged = stage_folder(store)
    (staged.folder / "editor.md").unlink()
    (staged.folder / "deploys.md").unlink()
    old = (staged.folder / "staging.md").read_text("utf-8")
    write(
        staged.folder / "staging.md",
        "staging",
        old.partition("---\n\n")[2] + "- Carol approves every release\n- Ann prefers vim over emacs.\n",
        "The staging host",
    )
    store.edit("editor", body="Ann prefers vim over emacs, and nano in a hurry.")
    store.remove("deploys")
    outcome = commit_dream(store, staged, DREAM)

    assert "nano" in store.get("editor").body
    assert "Carol" not in after(store)
    assert {one.file for one in outcome.conflicts} == {"editor.md", "staging.md"}


# --- losses ---------------------------------------------------------------------------------------------


def test_a_dream_that_deletes_everything_deletes_nothing(store: MemoryStore) -> None:
    before = texts(store.path_of())
    staged = stage_folder(store)
    for path in staged.folder.glob("*.md"):
        path.unlink()
    outcome = commit_dream(store, staged, DREAM)

    assert texts(store.path_of()) == before
    assert outcome.lost == ()
    assert {kept.into for kept in outcome.kept} == {"editor.md", "deploys.md", "staging.md"}


def test_lines_without_an_account_are_put_back_where_their_file_went(store: MemoryStore) -> None:
    staged = stage_folder(store)
    (staged.folder / "deploys.md").unlink()
    write(
        staged.folder / "ops.md",
        "ops",
        "- Deploys happen on Friday at 15:00\n- The key is kept in /etc/acme/deploy.toml\n",
        "How we deploy",
    )
    path = staged.folder / "staging.md"
    path.write_text(path.read_text("utf-8").replace("listens on port 5432", "is fine"), "utf-8")
    outcome = commit_dream(store, staged, DREAM)

    assert store.get("ops").body.endswith("## Kept from deploys\n\n- Carol approves every release")
    assert store.get("staging").body.endswith("## Kept\n\n- The staging database listens on port 5432.")
    assert not (store.path_of("deploys.md")).exists()
    assert [(kept.fact.text, kept.into) for kept in outcome.kept] == [
        ("Carol approves every release", "ops.md"),
        ("The staging database listens on port 5432.", "staging.md"),
    ]


def test_a_superseded_value_goes_with_its_evidence_named(store: MemoryStore) -> None:
    staged = stage_folder(store)
    path = staged.folder / "staging.md"
    text = path.read_text("utf-8")
    path.write_text(text.replace("5432", "6432 since 2026-04-01"), "utf-8")
    told = {"The staging database listens on port 5432.": LossReason("superseded", "session:session-9")}
    seen = preview_dream(store, staged, DREAM, told, sessions=["session-9"])
    unproven = preview_dream(store, staged, DREAM, told)
    outcome = commit_dream(store, staged, DREAM, told, sessions=["session-9"])

    assert "5432" not in after(store)
    assert [(one.fact.text, one.evidence) for one in outcome.superseded] == [
        ("The staging database listens on port 5432.", "session:session-9")
    ]
    assert seen.superseded == outcome.superseded
    assert "-The staging database listens on port 5432." in seen.diff
    assert [kept.fact.text for kept in unproven.kept] == ["The staging database listens on port 5432."]


def test_what_is_stale_moves_to_the_archive(store: MemoryStore) -> None:
    staged = stage_folder(store)
    (staged.folder / "deploys.md").unlink()
    outcome = commit_dream(store, staged, DREAM, {"deploys.md": LossReason("stale", "MEMORY.md")})

    assert [(one.file, one.into) for one in outcome.archived] == [("deploys.md", "archive/deploys.md")]
    assert "Carol approves" in (store.path_of("archive/deploys.md")).read_text("utf-8")
    assert "deploys.md" not in store.index_text()
    assert store.recall("who approves a release?")[0].file == "archive/deploys.md"


def test_lines_that_only_the_index_had_are_kept(store: MemoryStore) -> None:
    index = store.path_of("MEMORY.md")
    text = index.read_text("utf-8").replace("— Which editor", "— Ann also owns 3 llamas in Peru")
    index.write_text(f"# Mine\n\nThe cat is called Miau and is 12 years old.\n\n{text}", "utf-8")
    store.take_in()
    staged = stage_folder(store)
    (staged.folder / "MEMORY.md").write_text("- [editor](editor.md) — short\n", "utf-8")
    commit_dream(store, staged, DREAM)

    assert "The cat is called Miau and is 12 years old." in store.index_text()
    assert "Ann also owns 3 llamas in Peru" in store.get("editor").body
    assert {"deploys.md", "staging.md"} <= set(
        store.index_text().replace("(", " ").replace(")", " ").split()
    )


# --- checks ---------------------------------------------------------------------------------------------


def test_secrets_and_orders_refuse_the_change_of_their_file_only(store: MemoryStore) -> None:
    staged = stage_folder(store)
    write(staged.folder / "token.md", "token", "ghp_0123456789abcdefghijABCDEFGHIJ012345\n")
    write(staged.folder / "orders.md", "orders", f"{ORDERS}\n")
    write(staged.folder / "fine.md", "fine", "Deploys happen on Friday at 15:00.\n")
    (staged.folder / "editor.md").unlink()
    path = staged.folder / "deploys.md"
    path.write_text(f"{path.read_text('utf-8')}- Ann prefers vim over emacs.\n{ORDERS}\n", "utf-8")
    before = texts(store.path_of())
    outcome = commit_dream(store, staged, DREAM)

    assert {one.file for one in outcome.conflicts} == {"token.md", "orders.md", "deploys.md"}
    assert [altered.file for altered in outcome.files] == ["fine.md", "MEMORY.md"]
    assert texts(store.path_of())["editor.md"] == before["editor.md"]
    assert len(store.quarantine.list()) == 2


@pytest.mark.parametrize("line", [ORDERS, "token: ghp_0123456789abcdefghijABCDEFGHIJ012345"])
def test_an_index_with_orders_or_secrets_is_not_taken_over(store: MemoryStore, line: str) -> None:
    staged = stage_folder(store)
    index = staged.folder / "MEMORY.md"
    index.write_text(f"{index.read_text('utf-8')}\n{line}\n", "utf-8")
    before = store.index_text()
    outcome = commit_dream(store, staged, DREAM)

    assert store.index_text() == before
    assert [one.file for one in outcome.conflicts] == ["MEMORY.md"]


def test_what_the_user_wrote_by_hand_may_be_moved_although_it_gives_orders(store: MemoryStore) -> None:
    write(store.path_of("mine.md"), "mine", f"{ORDERS}\n")
    store.take_in()
    staged = stage_folder(store)
    (staged.folder / "mine.md").unlink()
    write(staged.folder / "moved.md", "moved", f"{ORDERS}\n")

    outcome = commit_dream(store, staged, DREAM)
    assert [one.file for one in outcome.files] == ["moved.md", "MEMORY.md", "mine.md"]


def test_links_follow_a_memory_that_was_merged_and_invented_ones_become_text(store: MemoryStore) -> None:
    staged = stage_folder(store)
    write(
        staged.folder / "ops.md",
        "ops",
        (staged.folder / "deploys.md").read_text("utf-8").partition("---\n\n")[2]
        + "- See [[nobody]] and `[[code]]` and [[editor]].\n",
        "How we deploy",
    )
    (staged.folder / "deploys.md").unlink()
    commit_dream(store, staged, DREAM)

    assert "See [[ops]]." in store.get("staging").body
    assert "See nobody and `[[code]]` and [[editor]]." in store.get("ops").body
    assert not [one for one in store.check() if one.kind in ("link", "dangling", "missing")]


def test_an_index_over_its_limit_is_replaced_by_a_reconciled_one(store: MemoryStore) -> None:
    staged = stage_folder(store)
    lines = "".join(f"- line {n} of an index that never ends\n" for n in range(300))
    (staged.folder / "MEMORY.md").write_text(lines, "utf-8")
    before = store.index_text()
    write(staged.folder / "fine.md", "fine", "Deploys happen on Friday at 15:00.\n")
    commit_dream(store, staged, DREAM)

    assert store.index_text().startswith(before)
    assert "(fine.md)" in store.index_text()


def test_a_folder_with_more_memories_than_an_index_can_hold_is_dreamt_about_all_the_same(
    store: MemoryStore,
) -> None:
    for n in range(260):
        write(store.path_of() / f"many-{n}.md", f"many {n}", f"Cupboard {n} holds {n * 7} spoons.\n")
    store.take_in()
    staged = stage_folder(store)
    write(staged.folder / "few.md", "few", "Cupboard 1 holds 7 spoons.\nCupboard 2 holds 14 spoons.\n")
    (staged.folder / "many-1.md").unlink()
    (staged.folder / "many-2.md").unlink()
    outcome = commit_dream(store, staged, DREAM)

    assert {one.file for one in outcome.merged} == {"many-1.md", "many-2.md"}
    assert len(store.index_text().splitlines()) <= 200
    assert (outcome.files_before, outcome.files_after) == (263, 262)


# --- the revision ---------------------------------------------------------------------------------------


def test_a_dream_is_one_revision_and_undo_brings_back_every_byte(store: MemoryStore) -> None:
    before = texts(store.path_of())
    staged = stage_folder(store)
    body = (staged.folder / "staging.md").read_text("utf-8")
    moved = (staged.folder / "deploys.md").read_text("utf-8").partition("---\n\n")[2]
    (staged.folder / "staging.md").write_text(
        f"{body}How we deploy:\n{moved}\nAnn prefers vim over emacs. Which editor.\n", "utf-8"
    )
    (staged.folder / "deploys.md").unlink()
    (staged.folder / "editor.md").unlink()
    outcome = commit_dream(store, staged, DREAM)
    newest = store.history(limit=1)[0]

    assert (newest.id, newest.author) == (outcome.revision, DREAM)
    assert sorted(texts(store.path_of())) == ["MEMORY.md", "staging.md"]
    assert not is_commit_pending(store.backend)
    assert not staged.place.exists()
    store.undo()
    assert texts(store.path_of()) == before
    assert store.recover() == ""


def test_a_dream_is_undone_although_others_wrote_since(store: MemoryStore) -> None:
    before = texts(store.path_of())
    staged = stage_folder(store)
    path = staged.folder / "deploys.md"
    path.write_text(path.read_text("utf-8").replace("15:00", "15:00 sharp"), "utf-8")
    (staged.folder / "editor.md").unlink()
    write(staged.folder / "people.md", "people", "Ann prefers vim over emacs.\n", "Which editor")
    commit_dream(store, staged, DREAM)
    store.edit("deploys", body=store.get("deploys").body + "\n- Dan is on call until 2026-05-01")
    store.add(type="user", name="shell", description="Which shell", body="Ann uses fish.")
    undo_dream(store)
    found = texts(store.path_of())

    assert found["deploys.md"] == before["deploys.md"] + "- Dan is on call until 2026-05-01\n"
    assert found["editor.md"] == before["editor.md"]
    assert "Ann uses fish." in found["shell.md"]
    assert "people.md" not in found
    assert not [one for one in store.check() if one.kind in ("dangling", "missing")]
    with pytest.raises(Mistake, match="no dream to undo"):
        undo_dream(store)


def test_without_a_dream_there_is_none_to_undo(store: MemoryStore) -> None:
    with pytest.raises(Mistake, match="no dream"):
        undo_dream(store)


def test_a_dream_makes_no_memory_younger_unless_it_says_something_new(store: MemoryStore) -> None:
    for name, at in (("editor", 1_700_000_000), ("deploys", 1_710_000_000), ("staging", 1_720_000_000)):
        os.utime(store.path_of() / f"{name}.md", (at, at))
    staged = stage_folder(store)
    old = (staged.folder / "deploys.md").read_text("utf-8")
    (staged.folder / "deploys.md").write_text(
        f"{old}- Ann prefers vim over emacs. Which editor.\n", "utf-8"
    )
    (staged.folder / "editor.md").unlink()
    path = staged.folder / "staging.md"
    path.write_text(f"{path.read_text('utf-8')}\nBob watches it since 2026-02-02.\n", "utf-8")
    commit_dream(store, staged, DREAM)

    assert (store.path_of("deploys.md")).stat().st_mtime == 1_710_000_000
    assert (store.path_of("staging.md")).stat().st_mtime > 1_720_000_000
    assert store.take_in() == []


def test_a_dream_that_changed_nothing_is_no_revision(store: MemoryStore) -> None:
    newest = store.history(limit=1)[0]

    assert commit_dream(store, stage_folder(store), DREAM).files == ()
    assert store.history(limit=1)[0] == newest


# --- at random ------------------------------------------------------------------------------------------


def one_dream(place: Path, seed: int) -> None:
    rng = random.Random(seed)
    facts = Facts(rng)
    store = MemoryStore(FolderBackend(place / "memory", place / "state"), SystemClock())
    populate(store.path_of(), facts, rng.randint(2, 7))
    staged = stage_folder(store)
    given = numbers(texts(store.path_of()))
    dream(staged.folder, facts, rng.randint(1, 8))
    meddle(store.path_of(), facts, rng.randint(0, 4))
    store.take_in()
    now = texts(store.path_of())
    theirs = {file: text for file, text in now.items() if file not in {*staged.files, "MEMORY.md"}}
    outcome = commit_dream(store, staged, DREAM)
    then = texts(store.path_of())

    assert numbers(now) <= numbers(then), "nothing is lost"
    assert not (given - numbers(now)) & numbers(then), "what people removed stays removed"
    assert {file: then.get(file) for file in theirs} == theirs, "what came meanwhile is untouched"
    assert outcome.lost == ()
    assert store.take_in() == []
    if outcome.revision:
        store.undo()
        assert texts(store.path_of()) == now
    store.close()


@pytest.mark.parametrize("seed", range(25))
def test_random_dreams_among_random_people_lose_nothing(tmp_path: Path, seed: int) -> None:
    one_dream(tmp_path, seed)


@pytest.mark.soak
def test_a_thousand_random_dreams_lose_nothing(tmp_path: Path) -> None:
    for seed in range(1_000, 2_000):
        one_dream(tmp_path / str(seed), seed)
