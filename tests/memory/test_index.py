"""The index: pointers come and go with the files, other lines stay, nothing is dropped in silence."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sevenfold.memory.index import (
    CHARACTERS,
    HOOK,
    LINES,
    drop_pointers,
    find_missing_pointers,
    format_pointer,
    list_exceeded_limits,
    load_index,
    read_index,
    reconcile_index,
)
from sevenfold.memory.topic_file import Topic, read_topic

DATA = Path(__file__).parents[3] / "shared/data/memory_files_dev.jsonl.gz"


def topic(file: str, description: str = "a hook", name: str = "") -> Topic:
    return Topic(file, b"", name or file.removesuffix(".md"), description, "project", "")


def topics(*files: str) -> list[Topic]:
    return [topic(file) for file in files]


# -- reading


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("- [A](a.md) — hook", ["a.md"]),
        ("* [A](a.md): hook", ["a.md"]),
        ("+ [A](a.md)", ["a.md"]),
        ("12. [A](a.md) - hook", ["a.md"]),
        ("3) [A](a.md)", ["a.md"]),
        ("  - [A](a.md)", ["a.md"]),
        ("- **[A](a.md)** — hook", ["a.md"]),
        ("- [x] [A](a.md)", ["a.md"]),
        ("- 📌 [A](a.md)", ["a.md"]),
        ("| [A](a.md) | hook |", ["a.md"]),
        ("[A](a.md) — hook", ["a.md"]),
        ("- [A](./a.md)", ["a.md"]),
        ("- [A](sub/a.md)", ["sub/a.md"]),
        ("- [A](<my file.md>)", ["my file.md"]),
        ("- [A](my%20file.md)", ["my file.md"]),
        ("- [A](a.md#part)", ["a.md"]),
        ('- [A](a.md "title")', ["a.md"]),
        ("- [A](a(1).md)", ["a(1).md"]),
        ("- [[x] A](a.md)", ["a.md"]),
        ("- [部署](部署.md) — 说明", ["部署.md"]),
        ("- [A](a.md), [B](b.md) — both", ["a.md", "b.md"]),
        ("- [A](https://example.org/a.md)", []),
        ("- [A](../a.md)", []),
        ("- [A](/etc/a.md)", []),
        ("- [A](a.txt)", []),
        ("- [A](#part)", []),
        ("- ![A](a.md)", []),
        ("- `[A](a.md)`", []),
        ("See [A](a.md) for more.", []),
        ("- Deploying: [A](a.md)", []),
        ("## [A](a.md)", []),
        ("[A](a.md) describes the whole history of it.", []),
    ],
)
def test_which_lines_are_pointers(line: str, files: list[str]) -> None:
    assert [pointer.file for pointer in read_index(f"# Index\n{line}\n").pointers] == files


def test_a_pointer_has_title_hook_and_line() -> None:
    found = read_index("# Index\r\n\r\n- [The title](a.md) — the hook: more\r\n").pointers[0]
    assert (found.file, found.title, found.hook, found.line) == ("a.md", "The title", "the hook: more", 3)


def test_every_line_is_kept() -> None:
    text = "\ufeff# Index\r\n\n- [A](a.md)\rlast"
    assert "".join(read_index(text).lines) == text


# -- reconciling


def test_missing_pointers_come_at_the_end_and_dangling_ones_are_text() -> None:
    text = "# Mine\n\n## Work\n- [A](a.md) — old\n- [Gone](gone.md) — x\n\nA note by hand.\n"
    assert reconcile_index(text, topics("a.md", "b.md")) == (
        "# Mine\n\n## Work\n- [A](a.md) — old\n- Gone — x\n\nA note by hand.\n\n- [b](b.md) — a hook\n"
    )
    assert "Gone" not in drop_pointers(text, ["gone.md"])


def test_an_index_sorted_by_hand_stays_sorted() -> None:
    text = "- [Z](z.md)\n- [A](a.md)\n- [M](m.md)\n"
    assert reconcile_index(text, topics("a.md", "m.md", "z.md")) == text


def test_nothing_stands_twice() -> None:
    text = "- [A](a.md) — x\n- [A](a.md) — x\n* [a](./A.md) — y\n- [Other](a.md)\n- [B](a.md) — x\n"
    assert reconcile_index(text, topics("a.md")) == "- [A](a.md) — x\n"
    once = reconcile_index("", topics("a.md", "b.md"))
    assert reconcile_index(once, topics("a.md", "b.md")) == once


def test_one_file_under_two_headings_in_other_words_is_the_writers_choice() -> None:
    text = "# Work\n- [Cascade](c.md) — unbuilt\n# Sessions\n- [27 April](c.md) — seven plans\n"
    assert reconcile_index(text, topics("c.md")) == text


def test_a_mention_in_prose_counts_and_is_never_removed() -> None:
    text = "See [the notes](notes.md) and [gone](gone.md).\n"
    assert reconcile_index(text, topics("notes.md")) == text


def test_the_link_of_a_removed_file_leaves_a_shared_line_and_the_others_stay() -> None:
    assert drop_pointers("- [A](a.md), [X](x.md), [B](b.md) — all\n", ["x.md"]) == (
        "- [A](a.md), [B](b.md) — all\n"
    )
    assert drop_pointers("- [X](x.md), [A](a.md), [B](b.md) — all\n", ["x.md"]) == (
        "- [A](a.md), [B](b.md) — all\n"
    )
    assert drop_pointers("- [A](a.md), [B](b.md), [X](x.md) — all\r\n", ["x.md"]) == (
        "- [A](a.md), [B](b.md) — all\r\n"
    )
    assert drop_pointers("- [A](a.md) — one; [B](b.md) — two; [X](x.md) — three\n", ["x.md"]) == (
        "- [A](a.md) — one; [B](b.md) — two\n"
    )


def test_a_dead_link_in_a_shared_line_becomes_text() -> None:
    text = "- [A](a.md) — one; [B](b.md) — two; [X](x.md) — three\n"
    assert reconcile_index(text, topics("a.md", "b.md")) == text.replace("[X](x.md)", "X")
    assert reconcile_index("- [[a]] and [[Other name]]: how\n", topics("a.md")) == (
        "- [[a]] and Other name: how\n"
    )


def test_the_text_below_a_pointer_goes_with_it_and_other_items_stay() -> None:
    text = "- [X](x.md) — hook\n  that goes on\n  - a note\n- [A](a.md)\n  on and on\n"
    assert drop_pointers(text, ["x.md"]) == "  - a note\n- [A](a.md)\n  on and on\n"
    assert reconcile_index(text, topics("a.md")) == text.replace("[X](x.md)", "X")


def test_names_that_differ_in_case_or_composition_are_one_file() -> None:
    text = "- [A](Cafe\u0301.MD) — x\n"
    assert reconcile_index(text, topics("café.md")) == text


def test_an_index_may_point_by_name() -> None:
    text = "- [[deploy notes]] — x\n- [[b]]\n- [[gone]]\n"
    known = [topic("d1.md", name="deploy notes"), topic("b.md")]
    assert reconcile_index(text, known) == "- [[deploy notes]] — x\n- [[b]]\n"


def test_files_of_another_index_may_be_pointed_to_and_need_not_be() -> None:
    text = "- [T](team/t.md)\n"
    assert reconcile_index(text, topics("a.md"), also=["team/t.md", "team/u.md"]) == (
        "- [T](team/t.md)\n- [a](a.md) — a hook\n"
    )


def test_new_lines_follow_the_style_of_the_index() -> None:
    assert reconcile_index("* [A](a.md)\r\n", topics("a.md", "b.md")) == (
        "* [A](a.md)\r\n* [b](b.md) — a hook\r\n"
    )
    assert reconcile_index("# Index", topics("b.md")) == "# Index\n- [b](b.md) — a hook\n"


def test_a_fence_that_is_never_closed_hides_nothing() -> None:
    text = "```\n- [A](a.md)\n"
    once = reconcile_index(text, topics("a.md", "b.md"))
    assert once == "```\n- [A](a.md)\n- [b](b.md) — a hook\n"
    assert reconcile_index(once, topics("a.md", "b.md")) == once


def test_links_in_code_are_left_alone() -> None:
    text = "```\n- [Format](example.md)\n```\n"
    assert reconcile_index(text, []) == text


def test_a_hook_is_short_and_cannot_pose_as_something_else() -> None:
    line = format_pointer(
        topic("a b.md", "see [x](y.md) `code [[z]] " + "long words " * 40, name="T [1] `q")
    )
    assert len(line) <= HOOK
    assert line.startswith("- [T (1) 'q](<a b.md>) — see [x] (y.md)")
    assert [one.file for one in read_index(line).pointers] == ["a b.md"]


def test_missing_says_which_files_have_to_be_read() -> None:
    text = "- [A](a.md)\nsee [b](b.md)\n- [[named]]\n"
    files = ["a.md", "b.md", "c.md", "n.md"]
    assert find_missing_pointers(text, files, [("n.md", "named")]) == ["c.md"]


# -- limits


def test_a_full_index_is_fine_and_one_line_more_is_not() -> None:
    text = "- [A](a.md)\n" * LINES
    assert list_exceeded_limits(text) == []
    assert list_exceeded_limits(text + "x\n") == ["201 lines, 1 over the limit of 200"]
    assert list_exceeded_limits("x" * CHARACTERS) == []
    over = ["25,012 characters, 12 over the limit of 25,000"]
    assert list_exceeded_limits("x" * (CHARACTERS + 12)) == over


def test_within_the_limits_the_index_is_loaded_as_it_is() -> None:
    text = "# Index\r\n- [Gone](gone.md)"
    assert load_index(text, {}).text == text


def test_the_oldest_go_first_the_order_stays_and_it_is_said() -> None:
    names = [f"m{n:03}.md" for n in range(210)]
    text = "# Index\n" + "".join(f"- [M]({name}) — hook\n" for name in names)
    modified = {name: float((n * 37) % 210) for n, name in enumerate(names)}
    seen = load_index(text, modified).text
    lines = seen.splitlines()
    assert len(lines) == LINES
    assert lines[0] == "# Index"
    kept = [one.file for one in read_index(seen).pointers]
    oldest = sorted(names, key=lambda name: modified[name])[:12]
    assert kept == [name for name in names if name not in oldest]
    assert "211 lines, 11 over the limit of 200" in lines[-1]
    assert "12 pointers" in lines[-1]
    assert "and 4 more" in lines[-1]
    assert set(oldest) >= {name for name in names if name in lines[-1]}
    assert len(lines[-1]) < 700


def test_the_newest_lines_are_never_dropped_when_nothing_is_known_of_the_files() -> None:
    text = "".join(f"- [M](m{n}.md)\n" for n in range(300))
    assert "- [M](m299.md)\n" in load_index(text, {}).text
    assert "- [M](m0.md)\n" not in load_index(text, {}).text


def test_pointers_to_files_that_are_gone_go_before_all_others() -> None:
    text = "".join(f"- [M](m{n}.md)\n" for n in range(201))
    seen = load_index(text, {f"m{n}.md": 1.0 for n in range(201) if n not in {150, 151}}).text
    assert {0, 150, 151} & {int(one.file[1:-3]) for one in read_index(seen).pointers} == {0}


def test_too_many_characters_are_cut_at_line_ends() -> None:
    text = "".join(f"- [M](m{n}.md) — {'词' * 240}\n" for n in range(150))
    seen = load_index(text, {f"m{n}.md": float(n) for n in range(150)}).text
    assert len(seen) <= CHARACTERS
    assert "characters" in seen.splitlines()[-1]
    assert "- [M](m149.md)" in seen
    for line in seen.splitlines()[:-1]:
        assert line + "\n" in text


def test_an_index_of_prose_loses_its_end_and_keeps_its_pointers() -> None:
    text = "".join(f"line {n}\n" for n in range(250)) + "- [A](a.md)\n"
    seen = load_index(text, {"a.md": 1.0}).text.splitlines()
    assert len(seen) == LINES
    assert seen[0] == "line 0"
    assert "- [A](a.md)" in seen
    assert "from line 199 on" in seen[-1]


def test_one_endless_line_does_not_push_out_the_others() -> None:
    text = "- [New](new.md) — " + "x" * 30_000 + "\n- [Old](old.md) — y\n"
    seen = load_index(text, {"new.md": 2.0, "old.md": 1.0}).text
    assert seen.startswith("- [Old](old.md) — y\n> Warning")
    assert "new.md" in seen
    alone = load_index("word " * 8_000, {}).text
    assert len(alone) <= CHARACTERS
    assert alone.startswith("word word")
    assert "Warning" in alone.splitlines()[-1]


# -- laws

files = st.sampled_from(
    ["a.md", "b.md", "c d.md", "sub/e.md", "部署.md", "f(1).md", "it's.md", "100%.md", "x#y.md"]
)
prose = st.sampled_from(
    ["# Heading", "", "text", "```", "- item", "| a | b |", "`", "[x](", "---", "> quote", "1. one"]
) | st.text(max_size=30)
pointers = st.builds(lambda file, hook: format_pointer(topic(file, hook)), files, st.text(max_size=20))
texts = st.lists(prose | pointers, max_size=15).map("\n".join)
known = st.lists(st.builds(topic, files, st.text(max_size=200), st.text(max_size=120)), max_size=8).map(
    lambda all_: list({one.file: one for one in all_}.values())
)


@pytest.mark.parametrize("name", ["\\", "C:\\", "two\\\\"])
def test_a_title_that_ends_in_a_backslash_is_still_a_pointer(name: str) -> None:
    there = [topic("a.md", "hook", name)]

    new = reconcile_index("", there)

    assert reconcile_index(new, there) == new
    assert find_missing_pointers(new, ["a.md"]) == []


@given(texts, known)
@settings(max_examples=300)
def test_reconciling_settles_at_once_and_points_to_all(text: str, there: list[Topic]) -> None:
    new = reconcile_index(text, there)
    assert reconcile_index(new, there) == new
    assert find_missing_pointers(new, [one.file for one in there]) == []
    found = [(one.file, one.title.casefold()) for one in read_index(new).pointers]
    assert len(set(found)) == len(found)
    assert {file for file, _ in found} <= {one.file for one in there}


@given(texts, known)
def test_lines_by_hand_are_kept_byte_for_byte(text: str, there: list[Topic]) -> None:
    pointing = {pointer.line for pointer in read_index(text).pointers}
    if any(line.startswith(("  ", "\t")) for line in text.splitlines()):
        return
    lines = [line for n, line in enumerate(read_index(text).lines, 1) if n not in pointing]
    rest = iter(read_index(reconcile_index(text, there)).lines)
    for line in lines:
        assert any(line.rstrip("\r\n") == other.rstrip("\r\n") for other in rest)


@given(st.text(), st.dictionaries(files, st.floats()))
def test_whatever_is_in_the_file_it_is_loaded_within_the_limits(
    text: str, modified: dict[str, float]
) -> None:
    for long in (text, text * 2000, (text + "\n") * 500):
        seen = load_index(long, modified).text
        assert list_exceeded_limits(seen) == []
        assert seen == long or "Warning" in seen.splitlines()[-1]


# -- real indexes


@pytest.mark.skipif(not DATA.exists(), reason="the development data is not here")
def test_real_indexes_keep_every_line_and_what_dead_ones_say() -> None:
    folders: dict[str, dict[str, str]] = defaultdict(dict)
    with gzip.open(DATA, "rt", encoding="utf-8") as rows:
        for row in map(json.loads, rows):
            if row["kind"] in {"memory-dir", "agent-memory"}:
                path = PurePosixPath(row["path"])
                folders[f"{row['repo']}:{path.parent}"][path.name] = row["text"]
    seen = 0
    for folder in folders.values():
        text = folder.pop("MEMORY.md", None)
        if text is None:
            continue
        seen += 1
        there = [read_topic(data.encode(), file) for file, data in folder.items()]
        new = reconcile_index(text, there)
        dead = [one for one in read_index(text).pointers if one.file not in folder]
        gone = {one.line for one in dead}
        kept = {line for n, line in enumerate(read_index(text).lines, 1) if n not in gone}
        assert kept <= set(read_index(new).lines)
        assert all(one.hook in " ".join(new.split()) for one in dead if "](" not in one.hook)
        assert find_missing_pointers(new, folder) == []
        assert reconcile_index(new, there) == new
        named = [topic(one.file) for one in read_index(text).pointers]
        assert reconcile_index(text, named) == text
    assert seen > 20
