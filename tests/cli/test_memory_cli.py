"""`sevenfold memory`: saving, listing, finding and removing, by hand and by program."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cli.conftest import Here
from cli.terminal import Terminal
from cli.world import Ran, World

from sevenfold.simulator import Script, parse_steps, run_in_thread
from sevenfold.storage.places import make_path_slug

SECRET = "AKIAIOSFODNN7EXAMPLZ"
DAY = 86_400


def add(here: Here, name: str = "no-db-mocks", body: str = "Never mock the database.", **more: str) -> Ran:
    options = {"type": "feedback", "description": f"About {name}", "body": body, **more}
    words = [word for key, value in options.items() for word in (f"--{key}", value)]
    return here("memory", "add", "--name", name, *words, "--json")


def folder(here: Here) -> Path:
    return Path(here("memory", "path").out.rstrip("\n"))


def everything_below(place: Path) -> bytes:
    return b"".join(path.read_bytes() for path in place.rglob("*") if path.is_file())


# --- saving -------------------------------------------------------------------------------------------


def test_a_memory_is_a_file_with_a_line_in_the_index(here: Here) -> None:
    ran = add(here)

    saved = ran.json
    assert list(saved) == ["name", "path", "revision", "action", "held"]
    assert (saved["name"], saved["action"]) == ("no-db-mocks", "created")
    assert len(saved["revision"]) >= 7
    text = Path(saved["path"]).read_text(encoding="utf-8")
    assert "description: About no-db-mocks" in text
    assert "author: user" in text
    assert text.endswith("\nNever mock the database.\n")
    index = folder(here) / "MEMORY.md"
    assert index.read_text(encoding="utf-8") == "- [no-db-mocks](no-db-mocks.md) — About no-db-mocks\n"


def test_people_are_told_what_was_saved_and_stdout_stays_empty(here: Here) -> None:
    words = ("--type", "user", "--name", "role", "--description", "d", "--body", "A radiologist.")
    ran = here("memory", "add", *words)

    assert (ran.code, ran.out) == (0, "")
    assert ran.err == f"sevenfold: created role: {folder(here) / 'role.md'}\n"
    assert here("memory", "add", *words, "-q").err == ""


def test_the_same_again_changes_nothing_and_another_text_replaces_it(here: Here) -> None:
    add(here)
    again, other = add(here).json, add(here, body="Use the container.").json

    assert (again["action"], again["revision"]) == ("updated", "")
    assert other["action"] == "updated"
    assert other["revision"]
    assert here("memory", "show", "no-db-mocks", "--json").json["text"] == "Use the container."


def test_the_text_may_come_from_a_file_or_from_stdin(here: Here, world: World) -> None:
    path = world.write("note.md", "from a file\r\nwith two lines\n")
    words = ("memory", "add", "--type", "project", "--description", "d", "--name")

    assert here(*words, "a", "--file", str(path)).code == 0
    assert here(*words, "b", stdin="用 stdin\n".encode()).code == 0
    assert here(*words, "c", "--file", "-", stdin=b"dash").code == 0

    assert here("memory", "show", "a", "--json").json["text"] == "from a file\nwith two lines"
    assert here("memory", "show", "b", "--json").json["text"] == "用 stdin"
    assert here("memory", "show", "c", "--json").json["text"] == "dash"


FILE = "---\nname: other\ndescription: About the rig\ntype: reference\n---\n\nIt is in room 4.\n"


@pytest.mark.parametrize("way", ["file", "stdin"])
def test_a_text_that_is_a_memory_already_says_its_type_and_description(
    here: Here, world: World, way: str
) -> None:
    path = world.write("notes.md", FILE)
    given = ("memory", "add", "--name", "rig")
    ran = (
        here(*given, "--file", str(path))
        if way == "file"
        else here(*given, "--file", "-", stdin=FILE.encode())
    )
    assert ran.code == 0
    shown = here("memory", "show", "rig", "--json").json
    assert (shown["type"], shown["description"]) == ("reference", "About the rig")
    assert shown["text"] == "It is in room 4."
    assert (folder(here) / "rig.md").read_text(encoding="utf-8").count("---") == 2

    here(*given, "--file", str(path), "--type", "project", "--description", "Mine")
    shown = here("memory", "show", "rig", "--json").json
    assert (shown["type"], shown["description"]) == ("project", "Mine")


def test_a_text_without_frontmatter_needs_type_and_description(here: Here) -> None:
    bare = here("memory", "add", "--name", "x", "--body", "---\nA line.\n---\nText.")
    assert bare.code == 2
    assert "a memory needs a type: give it with --type" in bare.err
    half = here("memory", "add", "--name", "x", "--type", "user", "--body", "Text.")
    assert half.code == 2
    assert "a memory needs a description" in half.err
    only = here("memory", "add", "--name", "x", "--body", FILE.partition("\n\n")[0])
    assert only.code == 2
    assert "nothing below it" in only.err


def test_a_memory_for_the_team_goes_into_its_folder_and_its_index(here: Here) -> None:
    team = folder(here) / "team"
    team.mkdir(parents=True)
    words = ("--type", "project", "--name", "train", "--description", "Tuesdays", "--body", "b")
    ran = here("memory", "add", *words, "--team", "--json")

    assert ran.json["path"] == str(team / "train.md")
    assert (team / "MEMORY.md").read_text(encoding="utf-8") == "- [train](train.md) — Tuesdays\n"
    assert not (folder(here) / "MEMORY.md").exists()
    assert here("memory", "show", "team/train").code == 0
    assert (
        here("memory", "purge", "team/train", "--yes")
        .err.rstrip()
        .endswith("what was shared with the team before is still in its repository")
    )

    refused = here("memory", "add", "--type", "user", *words[2:], "--team")
    assert refused.code == 3
    assert "never shared with the team" in refused.err


@pytest.mark.parametrize(
    ("words", "stdin", "why"),
    [
        ((), b"", "a memory needs a text: give it with --body, with --file, or on stdin"),
        (("--body", " "), b"", "the text is empty"),
        ((), b"\xff\xfe\x00", "not UTF-8"),
        (("--body", "a", "--file", "b"), b"", "two texts"),
        (("--file", "none.md"), b"", "none.md: No such file"),
        (("--body", "a", "--team"), b"", "there is no team memory here: 'sevenfold team init"),
    ],
)
def test_what_is_no_text_is_wrong_usage(here: Here, words: tuple[str, ...], stdin: bytes, why: str) -> None:
    given = ("--type", "user", "--name", "n", "--description", "d")
    ran = here("memory", "add", *given, *words, stdin=stdin)

    assert ran.code == (1 if "none.md" in words else 2)
    assert why in ran.err
    assert here("memory", "--json").json["memories"] == []


def test_a_type_that_is_none_is_refused_with_those_there_are(here: Here) -> None:
    ran = add(here, type="rumour")

    assert ran.code == 2
    assert ran.json["error"] == "usage"
    assert "'reference'" in ran.json["reason"]


# --- the guard ----------------------------------------------------------------------------------------


def test_a_secret_is_refused_and_written_nowhere(here: Here, world: World) -> None:
    ran = add(here, body=f"The key is {SECRET}.")

    assert ran.code == 3
    assert set(ran.json) == {"error", "reason", "finding"}
    assert ran.json["error"] == "refused"
    assert ran.json["finding"]["kind"] == "secret"
    assert "AWS" in ran.json["reason"]
    assert SECRET not in ran.out + ran.err
    assert SECRET.encode() not in everything_below(world.home)


@pytest.mark.parametrize("where", ["name", "description"])
def test_a_secret_in_any_part_of_it_is_refused(here: Here, where: str) -> None:
    words = {"name": "n", "description": "d", where: f"token {SECRET}"}
    ran = add(here, **words)

    assert ran.code == 3
    assert SECRET not in ran.out + ran.err


def test_a_secret_that_was_typed_in_the_wrong_place_is_not_echoed(here: Here) -> None:
    given = ("memory", "add", "--type", "user", "--name", "n", "--description", "d", "--json")
    for words in (("--body", "the", "key", SECRET), ("--body", "b", f"--key={SECRET}")):
        ran = here(*given, *words)

        assert ran.code == 2
        assert SECRET not in ran.out + ran.err
        assert "=" in words[-1] or "[hidden]" in ran.json["reason"]


def test_an_edit_is_guarded_too(here: Here) -> None:
    add(here)
    ran = here("memory", "edit", "no-db-mocks", "--body", f"key {SECRET}", "--json")

    assert (ran.code, ran.json["error"]) == (3, "refused")
    assert here("memory", "show", "no-db", "--json").json["text"] == "Never mock the database."


def test_a_name_that_leads_elsewhere_is_refused(here: Here, world: World) -> None:
    for name in ("../../evil", "/etc/evil", "..\\evil", "~/evil"):
        ran = add(here, name)

        assert ran.code == 3, name
        assert ran.json["finding"] is None
    assert not list(world.top.rglob("*evil*"))


# --- looking ------------------------------------------------------------------------------------------


def test_the_newest_memory_comes_first(here: Here) -> None:
    for name, days in (("old", 40), ("older", 70), ("new", 0)):
        path = Path(add(here, name).json["path"])
        at = path.stat().st_mtime - days * DAY
        os.utime(path, (at, at))

    listed = here("memory", "list", "--json").json
    rows = here("memory").out.splitlines()

    assert [one["name"] for one in listed["memories"]] == ["new", "old", "older"]
    assert [one["age_days"] for one in listed["memories"]] == [0, 40, 70]
    assert listed["folder"] == str(folder(here))
    assert rows[1].split("  ")[0] == "old"
    assert rows[1].endswith("feedback  40 days ago  About old")


def test_an_empty_memory_says_how_to_begin(here: Here, world: World) -> None:
    ran = here("memory")

    assert (ran.code, ran.out) == (0, "")
    assert "'sevenfold memory add' saves" in ran.err
    assert not world.home.exists(), "looking makes nothing"


def test_one_memory_is_shown_with_its_age_and_a_warning_when_it_is_old(here: Here) -> None:
    path = Path(add(here).json["path"])
    os.utime(path, (path.stat().st_mtime - 9 * DAY,) * 2)

    ran = here("memory", "show", "no-db")
    shown = here("memory", "show", "no-db-mocks.md", "--json").json

    assert ran.out.startswith(f"no-db-mocks  feedback · 9 days ago · {path}\nAbout no-db-mocks\n\nNever")
    assert "Written 9 days ago" in ran.err
    assert (shown["age_days"], shown["text"]) == (9, "Never mock the database.")
    assert shown["origin"]["author"] == "user"


def test_a_name_that_is_not_there_names_what_comes_close(here: Here) -> None:
    add(here)
    ran = here("memory", "show", "no-db-mokcs", "--json")

    assert ran.code == 2
    assert ran.json["error"] == "no_such_memory"
    assert "did you mean 'no-db-mocks'?" in ran.json["reason"]


def test_a_memory_cannot_move_the_cursor(here: Here) -> None:
    path = Path(add(here).json["path"])
    path.write_text(path.read_text(encoding="utf-8") + "\x1b[2Jgone", encoding="utf-8")

    assert "\x1b" not in here("memory", "show", "no-db").out
    assert "\x1b" not in here("memory", "recall", "mock the database").out


def test_check_says_what_to_mend_and_how(here: Here) -> None:
    add(here)
    assert here("memory", "check", "--json").json["ok"]
    assert "nothing to mend" in here("memory", "check").out
    (folder(here) / "no-db-mocks.md").unlink()

    ran = here("memory", "check", "--json")

    assert ran.code == 1
    assert ran.json["findings"][0]["kind"] == "dangling"
    [line, _] = here("memory", "check").out.splitlines()
    assert line.startswith(
        "dangling: MEMORY.md: line 1 points to no-db-mocks.md, which is not there → remove"
    )


def test_check_says_one_line_for_each_problem_the_gravest_first(here: Here) -> None:
    add(here)
    place = folder(here)
    for n in range(240):
        text = (
            f"---\nname: m{n}\ndescription: Box {n}\ntype: project\n---\nIt is due next Friday, box {n}.\n"
        )
        (place / f"m{n}.md").write_text(text, encoding="utf-8")
    key = "AKIA" + "QYLPMN5HFIQR7XYA"  # shaped like one, and nobody's
    (place / "key.md").write_text(
        f"---\nname: key\ndescription: d\ntype: user\n---\n{key}\n", encoding="utf-8"
    )

    lines = here("memory", "check").out.splitlines()

    assert [line.partition(":")[0] for line in lines[:3]] == ["secret", "missing (241)", "date (240)"]
    assert "the index has no line for it: key.md, m0.md, m1.md and 238 more → the next write" in lines[1]
    assert lines[3] == "(--all lists each of them)"
    every = here("memory", "check", "--all").out.splitlines()
    assert sum(line.startswith("date: m") for line in every) == 240
    assert len(here("memory", "check", "--json").json["findings"]) == 482


def test_an_edit_that_contradicts_the_description_says_so(here: Here) -> None:
    said = "The API listens on port 8080"
    add(here, "port", f"{said}.", description=said)

    ran = here("memory", "edit", "port", "--body", "The API listens on port 9090.")

    assert ran.code == 0
    assert "its text says 'The API listens on port 9090.'" in ran.err
    assert "its description says 'The API listens on port 8080'" in ran.err
    assert here("memory", "check").out.startswith("contradiction: port.md: its description says")
    both = (
        "--description",
        "The API listens on port 9090",
        "--body",
        "The API listens on port 9090, always.",
    )
    assert "description" not in here("memory", "edit", "port", *both).err


# --- where it is --------------------------------------------------------------------------------------


def test_path_prints_the_folder_and_nothing_else(here: Here, world: World) -> None:
    ran = here("memory", "path")

    assert ran.out == f"{world.home}/projects/{make_path_slug(world.project)}/memory\n"
    assert ran.err == ""
    assert here("memory", "path", "--json").json == {
        "path": ran.out.rstrip("\n"),
        "exists": False,
        "on": True,
        "off": None,
        "state": str(Path(ran.out).parent / "memory-state"),
    }


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"SEVENFOLD_DISABLE_MEMORY": "1"}, "SEVENFOLD_DISABLE_MEMORY is set"),
        ({"SEVENFOLD_BARE": "1"}, "bare session"),
        ({"SEVENFOLD_REMOTE": "1"}, "SEVENFOLD_REMOTE"),
    ],
)
def test_where_memory_is_off_every_command_says_why(
    here: Here, world: World, variables: dict[str, str], why: str
) -> None:
    world.variables |= variables
    for words in (("list",), ("show", "x"), ("recall", "x"), ("check",), ("quarantine",), ("undo",)):
        ran = here("memory", *words, "--json")

        assert ran.code == 2
        assert ran.json["error"] == "memory_off"
        assert why in ran.json["reason"]
    path = here("memory", "path")
    assert path.code == 0
    assert path.out.endswith("/memory\n")
    assert why in path.err


def test_a_folder_of_claude_code_is_shared_both_ways(here: Here, world: World) -> None:
    shared = world.user / ".claude"
    theirs = shared / "projects" / make_path_slug(world.project) / "memory"
    theirs.mkdir(parents=True)
    (theirs / "tabs.md").write_text(
        "---\nname: tabs\ndescription: Tabs, never spaces\ntype: feedback\n---\nTabs.\n", encoding="utf-8"
    )
    words = ("--home", str(shared))

    assert [m["name"] for m in here("memory", "--json", *words).json["memories"]] == ["tabs"]
    saved = here(
        *("memory", "add", "--type", "user", "--name", "role", "--description", "d", "--body", "b"),
        *("--json", *words),
    ).json
    here("memory", "edit", "tabs", "--body", "Always tabs.", *words)

    assert saved["path"] == str(theirs / "role.md")
    assert "(role.md)" in (theirs / "MEMORY.md").read_text(encoding="utf-8")
    assert (theirs / "tabs.md").read_text(encoding="utf-8").endswith("---\nAlways tabs.\n")
    revisions = here("memory", "history", "--json", *words).json["revisions"]
    assert [one["author"]["kind"] for one in revisions] == ["user", "user", "other"]
    left = {path.name for path in shared.rglob("*") if path.is_file()}
    assert left - {"tabs.md", "role.md", "MEMORY.md", ".memory.lock"} == set()
    assert here("memory", "--json").json["memories"] == [], "ours is another one"


# --- finding ------------------------------------------------------------------------------------------


def test_recall_gives_what_answers_with_all_that_a_program_needs(here: Here) -> None:
    add(here)
    add(here, "dashboards", "Grafana, folder Checkout", type="reference")

    found = here("memory", "recall", "may I mock the database?", "--json").json

    assert found["query"] == "may I mock the database?"
    assert found["took_ms"] > 0
    best = found["memories"][0]
    assert set(best) == {"name", "path", "type", "description", "age_days", "score", "text"}
    assert (best["name"], best["type"], best["age_days"]) == ("no-db-mocks", "feedback", 0)
    assert best["text"] == "Never mock the database."


def test_people_read_what_was_recalled(here: Here) -> None:
    add(here, body="\n".join(["Never mock the database.", *(f"line {n}" for n in range(40))]))

    ran = here("memory", "recall", "mock", "the", "database")

    assert "no-db-mocks  feedback · today · " in ran.out
    assert "  Never mock the database.\n" in ran.out
    assert "more lines: sevenfold memory show no-db-mocks.md" in ran.out


def test_nothing_useful_is_an_empty_list_and_no_failure(here: Here) -> None:
    empty = here("memory", "recall", "the weather in Lisbon", "--json")
    assert (empty.code, empty.json["memories"]) == (0, [])
    add(here)
    ran = here("memory", "recall", "zzz qqq")
    assert (ran.code, ran.out) == (0, "")
    assert "nothing that is remembered answers that" in ran.err


def test_a_folder_without_an_index_is_answered_at_once_and_the_next_command_goes_on(here: Here) -> None:
    folder = Path(here("memory", "path").out.strip())
    folder.mkdir(parents=True)
    for number in range(300):
        text = f"---\nname: note-{number}\ndescription: note {number}\n---\nThe post{number} is painted.\n"
        (folder / f"note-{number}.md").write_text(text, encoding="utf-8")

    first = here("memory", "recall", "when was post77 painted?", "--wait", "0", "--limit", "1", "--json")
    assert (first.code, [one["name"] for one in first.json["memories"]]) == (0, ["note-77"])
    whole = here("memory", "recall", "when was post77 painted?", "--wait", "120", "--limit", "1", "--json")
    assert [one["name"] for one in whole.json["memories"]] == ["note-77"]
    assert "so far" not in whole.err


def test_not_more_are_given_than_asked_for(here: Here) -> None:
    for n in range(4):
        add(here, f"db-{n}", f"The database number {n}.")

    assert len(here("memory", "recall", "database", "--limit", "2", "--json").json["memories"]) <= 2


def test_a_model_that_chooses_needs_a_key(here: Here) -> None:
    add(here)
    for selector in ("model", "hybrid+model"):
        ran = here("memory", "recall", "database", "--selector", selector, "--json")

        assert ran.code == 2
        assert "needs a model" in ran.json["reason"]
        assert "--selector hybrid" in ran.json["reason"]
    assert here("memory", "recall", "database", "--selector", "hybrid").code == 0


def chooses(*files: str) -> Script:
    use = {"type": "tool_use", "name": "choose_memories", "input": {"files": files}}
    return Script(parse_steps(json.dumps({"reply": {"content": [use]}})))


def test_a_model_can_choose(here: Here, world: World) -> None:
    add(here)
    add(here, "dashboards", "Grafana, folder Checkout", type="reference")
    with run_in_thread(script=chooses("dashboards.md", "../etc/passwd")) as sim:
        world.at(sim.url)
        ran = here("memory", "recall", "may I mock the database?", "--selector", "model", "--json")

    assert ran.code == 0, ran.err
    assert ran.json["selector"] == "model"
    assert [one["name"] for one in ran.json["memories"]] == ["dashboards"]


def test_where_a_model_fails_the_search_answers_and_says_so(here: Here, world: World) -> None:
    add(here)
    script = Script(parse_steps('{"reply": {"text": "I would rather talk."}}'))
    with run_in_thread(script=script) as sim:
        world.at(sim.url)
        ran = here("memory", "recall", "mock the database", "--selector", "hybrid+model", "--json")

    assert [one["name"] for one in ran.json["memories"]] == ["no-db-mocks"]
    assert "the model did not choose" in ran.err


# --- searching ----------------------------------------------------------------------------------------


def test_search_finds_parts_of_words_with_the_line_around_them(here: Here) -> None:
    add(here, body="The error was\nE_CONN_4711 in the pool\nof connections.")

    found = here("memory", "search", "conn_47", "--json").json

    assert found["query"] == "conn_47"
    assert [one["line"] for one in found["memories"]] == ["E_CONN_4711 in the pool"]
    assert "transcripts" not in found
    assert here("memory", "search", "conn_47").out.endswith("no-db-mocks.md: E_CONN_4711 in the pool\n")


def test_search_looks_into_transcripts_only_when_asked(here: Here) -> None:
    session = here("-p", "the Zebra code is 4711", "--json").json["session"]
    add(here, body="zebra: an animal")

    assert "transcripts" not in here("memory", "search", "zebra", "--json").json
    found = here("memory", "search", "ZEBRA", "--transcripts", "--json").json

    assert [one["name"] for one in found["memories"]] == ["no-db-mocks"]
    first = found["transcripts"][0]
    assert (first["session"], first["by"]) == (session, "user")
    assert first["text"] == "the Zebra code is 4711"
    lines = here("memory", "search", "zebra", "--transcripts").out.splitlines()
    assert lines[0].endswith("no-db-mocks.md: zebra: an animal")
    assert lines[1].startswith(f"{session}  2")


def test_what_a_transcript_search_shows_is_bounded(here: Here, world: World) -> None:
    world.write("big.txt", "\n".join(f"needle {n} " + "x" * 500 for n in range(60)))
    here("-p", "read big.txt")

    found = here("memory", "search", "needle", "--transcripts", "--limit", "5", "--json").json

    assert 0 < len(found["transcripts"]) <= 5
    assert all(len(one["text"]) < 300 for one in found["transcripts"])


def test_all_the_words_have_to_be_in_one_line_of_a_transcript(here: Here) -> None:
    here("-p", "port of staging: 8080\nhost of production: prod-1")

    def texts(*words: str) -> list[str]:
        found = here("memory", "search", *words, "--transcripts", "--json").json["transcripts"]
        return [one["text"] for one in found if one["by"] == "user"]

    assert texts("8080", "staging") == ["port of staging: 8080"]
    assert texts("8080", "production") == []
    assert texts('"of production"') == ["host of production: prod-1"]


def test_a_search_in_chinese_finds_what_was_said(here: Here) -> None:
    here("-p", "生产数据库是 Postgres 十四")
    add(here, "db", "生产数据库用 Postgres。")

    found = here("memory", "search", "数据库", "--transcripts", "--json").json

    assert found["memories"][0]["line"] == "生产数据库用 Postgres。"
    assert found["transcripts"][0]["text"] == "生产数据库是 Postgres 十四"


def test_a_transcript_that_is_damaged_is_searched_as_far_as_it_can_be_read(
    here: Here, world: World
) -> None:
    here("-p", "the zebra code")
    [path] = world.transcripts
    path.write_bytes(b'{"torn zebra\n\xff zebra \x00\n' + path.read_bytes() + b'{"what": "zebra')

    found = here("memory", "search", "zebra", "--transcripts", "--json").json

    assert found["transcripts"][0]["text"] == "the zebra code"


# --- changing and removing ----------------------------------------------------------------------------


def test_an_edit_changes_what_is_given_and_nothing_else(here: Here) -> None:
    path = Path(add(here).json["path"])
    before = path.read_text(encoding="utf-8")

    described = here("memory", "edit", "no-db", "--description", "Another one", "--json").json
    piped = here("memory", "edit", "no-db", "--json", stdin=b"Use the container.\n").json
    typed = here("memory", "edit", "no-db", "--type", "project", "--json").json

    assert [one["action"] for one in (described, piped, typed)] == ["updated"] * 3
    assert len({one["revision"] for one in (described, piped, typed)}) == 3
    after = before.replace("About no-db-mocks", "Another one").replace("type: feedback", "type: project")
    assert path.read_text(encoding="utf-8") == after.replace(
        "Never mock the database.", "Use the container."
    )


def test_an_edit_of_nothing_is_wrong_usage(here: Here) -> None:
    add(here)

    assert here("memory", "edit", "none", "--body", "x").code == 2
    ran = here("memory", "edit", "no-db")
    assert ran.code == 2
    assert "use --body, --file, --description or --type" in ran.err


def editor(world: World, script: str) -> None:
    """An editor that does what a script says with the file `$1`."""
    path = world.write("editor.sh", f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    world.variables["EDITOR"] = f"{path} --wait"
    path.write_text(path.read_text(encoding="utf-8").replace("$1", "$2"), encoding="utf-8")


def test_at_a_terminal_an_editor_opens(here: Here, world: World) -> None:
    path = Path(add(here).json["path"])
    editor(world, 'sed -i "s/Never mock/Do not ever mock/" "$1"')

    with Terminal(["memory", "edit", "no-db"], world.env, world.project) as t:
        t.wait_for("updated no-db-mocks")
        assert t.wait_for_end() == 0

    assert path.read_text(encoding="utf-8").endswith("Do not ever mock the database.\n")
    assert here("memory", "history", "--json").json["revisions"][0]["summary"] == "edited no-db-mocks"
    state = path.parents[1] / "memory-state"
    assert not list(state.glob("edit-*")), "the copy is gone"


def test_what_an_editor_leaves_is_guarded_and_can_be_edited_again(here: Here, world: World) -> None:
    path = Path(add(here).json["path"])
    editor(
        world, f'grep -q {SECRET} "$1" && sed -i "s/{SECRET}/see the vault/" "$1" || echo {SECRET} >> "$1"'
    )

    with Terminal(["memory", "edit", "no-db"], world.env, world.project) as t:
        t.wait_for("AWS access key", "Edit it again?")
        assert SECRET.encode() not in path.read_bytes()
        t.line("y")
        t.wait_for("updated no-db-mocks")
        assert t.wait_for_end() == 0

    assert path.read_text(encoding="utf-8").endswith("see the vault\n")
    assert SECRET.encode() not in everything_below(world.home)


def test_an_editor_that_fails_changes_nothing(here: Here, world: World) -> None:
    before = Path(add(here).json["path"]).read_bytes()
    editor(world, 'echo more >> "$1"; exit 3')

    with Terminal(["memory", "edit", "no-db"], world.env, world.project) as t:
        t.wait_for("ended with 3; nothing was changed")
        assert t.wait_for_end() == 1

    assert (folder(here) / "no-db-mocks.md").read_bytes() == before


def test_a_removed_memory_says_how_to_have_it_back(here: Here) -> None:
    path = Path(add(here).json["path"])

    ran = here("memory", "rm", "no-db")

    assert not path.exists()
    assert "'sevenfold memory undo no-db-mocks' brings it back" in ran.err
    assert here("memory", "undo", "no-db-mocks").code == 0
    assert path.exists()
    assert here("memory", "rm", "no-db", "--json").json["action"] == "removed"


def test_purging_leaves_nothing_behind(here: Here, world: World) -> None:
    add(here, body="My unlisted number is 555-0199.")
    here("memory", "recall", "unlisted number")
    add(here, "other", "Another memory.")

    asked = here("memory", "purge", "no-db-mocks")
    assert asked.code == 2
    assert "add --yes" in asked.err
    ran = here("memory", "purge", "no-db-mocks", "--yes", "--json")

    assert (ran.json["name"], ran.json["action"]) == ("no-db-mocks", "removed")
    assert b"555-0199" not in everything_below(world.home)
    assert [one["name"] for one in here("memory", "--json").json["memories"]] == ["other"]
    assert here("memory", "recall", "unlisted number", "--json").json["memories"] == []


def test_at_a_terminal_purging_asks(here: Here, world: World) -> None:
    path = Path(add(here).json["path"])
    for answer, code, there in (("n", 3, True), ("y", 0, False)):
        with Terminal(["memory", "purge", "no-db-mocks"], world.env, world.project) as t:
            t.wait_for("Purge no-db-mocks for good, with its one revision? [y/N]")
            t.line(answer)

            assert t.wait_for_end() == code
        assert path.exists() is there


# --- for programs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("path",),
        ("check",),
        ("show", "none"),
        ("show",),
        ("add",),
        ("edit", "none"),
        ("rm", "none"),
        ("purge", "none", "--yes"),
        ("recall", "anything at all"),
        ("search", "anything", "--transcripts"),
        ("history",),
        ("history", "none"),
        ("diff",),
        ("undo",),
        ("quarantine",),
        ("quarantine", "show", "1"),
        ("quarantine", "release", "1"),
        ("quarantine", "drop", "1"),
    ],
    ids=" ".join,
)
def test_with_json_there_is_one_document_on_stdout_and_nothing_else(
    here: Here, words: tuple[str, ...]
) -> None:
    ran = here("memory", *words, "--json")

    assert isinstance(ran.json, dict)
    assert ran.out.count("\n") == 1
    assert ran.code in (0, 2, 3)


def test_two_processes_can_save_at_the_same_time(here: Here, world: World) -> None:
    words = ("memory", "add", "--type", "user", "--description", "d", "--body", "b", "--new", "--name")
    started = [world.start(*words, f"n{n}") for n in range(4)]

    assert [process.wait(60) for process in started] == [0] * 4
    for process in started:
        process.communicate()
    assert len(here("memory", "--json").json["memories"]) == 4
    assert (folder(here) / "MEMORY.md").read_text(encoding="utf-8").count("\n") == 4
