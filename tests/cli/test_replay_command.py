"""`sevenfold replay`: what it prints, what it promises in JSON, and what it does with bad input."""

from __future__ import annotations

import gzip
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Here
from cli.world import World
from replay import sessions

from sevenfold.replay.policies import BUILT_IN

Json = dict[str, Any]
PROMISED = {
    "path", "format", "requests", "policy", "tokens", "cache_read", "cache_write", "breaks",
    "simulated_cost", "paid_cost", "regret", "fidelity", "layers", "errors",
}  # fmt: skip


@pytest.fixture
def recorded(world: World) -> Path:
    """A folder with a session in every format."""
    folder = world.project / "recorded"
    folder.mkdir()
    (folder / "claude.jsonl").write_bytes(sessions.claude_code())
    (folder / "codex.jsonl.gz").write_bytes(gzip.compress(sessions.codex()))
    (folder / "list.json").write_text(json.dumps(sessions.messages()), encoding="utf-8")
    (folder / "ours.jsonl").write_bytes(sessions.sevenfold())
    (folder / "package.json").write_text('{"name": "other"}', encoding="utf-8")
    return folder


def test_a_session_is_replayed_with_what_was_promised(here: Here, recorded: Path) -> None:
    ran = here("replay", str(recorded / "claude.jsonl"), "--json")

    assert ran.code == 0
    [file] = ran.json["files"]
    assert set(file) >= PROMISED
    assert (file["format"], file["policy"], file["errors"]) == ("claude-code", "balanced", [])
    assert file["turns"] == 4
    assert file["paid_cost"]["currency"] == "USD"
    assert set(file["regret"]) >= {"cleared", "needed_again"}
    assert set(ran.json["total"]) >= {
        "requests", "simulated_cost", "paid_cost", "regret", "fidelity",
    }  # fmt: skip
    assert ran.json["total"]["requests"] == file["requests"]


def test_what_was_paid_counts_every_reply_once(here: Here, recorded: Path) -> None:
    file = here("replay", str(recorded / "claude.jsonl"), "--json").json["files"][0]

    first = 3 + 1.25 * 19_997
    later = sum(3 + 1.25 * 900 + 0.1 * (20_000 + 900 * n - 903) for n in (1, 2, 3))
    assert file["paid_cost"]["units"] == pytest.approx(first + later)


def test_every_format_in_one_folder_is_replayed(here: Here, recorded: Path) -> None:
    ran = here("replay", str(recorded), "--price", "claude-sonnet-4-5", "--json")

    found = {Path(file["path"]).name: file for file in ran.json["files"]}
    assert {name: file["format"] for name, file in found.items()} == {
        "claude.jsonl": "claude-code",
        "codex.jsonl.gz": "codex",
        "list.json": "messages",
        "ours.jsonl": "sevenfold",
    }
    assert ran.code == 0
    assert all(file["turns"] for file in found.values())
    assert found["list.json"]["paid_cost"] is None
    assert found["list.json"]["notes"]
    total = ran.json["total"]
    assert (total["files"], total["paid_files"], total["priced_files"]) == (4, 3, 4)
    said = [file for file in found.values() if file["paid_cost"]]
    paid = sum(file["paid_cost"]["units"] for file in said)
    assert total["paid_cost"]["units"] == pytest.approx(paid)
    cost = sum(file["simulated_cost"]["units"] for file in said)
    assert total["of_paid"] == pytest.approx(cost / paid, abs=1e-3)
    assert total["simulated_cost"]["currency"] == "USD"


def test_a_table_says_of_how_many_sessions_its_total_is_and_what_it_leaves_out(
    here: Here, recorded: Path
) -> None:
    ran = here("replay", str(recorded))

    assert "paid is known for 3 of 4 sessions" in ran.out
    assert "a price is known for 3 of 4 sessions" in ran.out
    assert "not charged: the status of agents" in ran.out


def test_policies_are_printed_side_by_side(here: Here, recorded: Path) -> None:
    ran = here("replay", str(recorded / "claude.jsonl"), "--compare")

    head, *rows = [line.split()[0] for line in ran.out.splitlines() if line and line[0] != " "]
    assert head == "policy"
    assert sorted(rows) == sorted(BUILT_IN)
    assert ran.code == 0


def test_several_policies_are_an_object_each(here: Here, recorded: Path) -> None:
    words = ["--policy", "append-only", "--policy", "balanced", "--json"]
    policies = here("replay", str(recorded / "claude.jsonl"), *words).json["policies"]

    assert list(policies) == ["append-only", "balanced"]
    for name, one in policies.items():
        assert one["files"][0]["policy"] == name
        assert one["total"]["requests"]


def test_layers_are_left_out_together_or_compared_one_by_one(here: Here, recorded: Path) -> None:
    path = str(recorded / "claude.jsonl")
    words = ["--without", "micro", "--without", "notes"]

    together = here("replay", path, *words, "--json").json
    compared = here("replay", path, *words, "--compare", "--json").json

    assert together["policy"] == "balanced without micro, notes"
    assert list(compared["policies"]) == [
        "append-only", "balanced", "balanced without micro", "balanced without notes",
    ]  # fmt: skip


def test_a_policy_of_ones_own_is_a_file(here: Here, recorded: Path, world: World) -> None:
    path = world.project / "mine.toml"
    path.write_text('description = "mine"\n[flags]\nnotes = false\n', encoding="utf-8")

    ran = here("replay", str(recorded / "claude.jsonl"), "--policy", str(path), "--json")

    assert ran.json["policy"] == "mine"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--policy", "nonsense"], "there is no policy 'nonsense'"),
        (["--without", "mirco"], "did you mean 'micro'"),
        (["--price", "claude-opus-4-55"], "did you mean 'claude-opus-4-5'"),
        (["--policy", "balanced", "--policy", "balanced"], "named twice"),
        (["--without", "team"], "does not carry out 'team'"),
        (["--html", "no/such/folder/x.html"], "no such folder"),
        (["--html", "."], "that is a folder"),
        (["--jobs", "0"], "--jobs"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_read(
    here: Here, words: list[str], why: str
) -> None:
    ran = here("replay", "nowhere", *words)

    assert ran.code == 2
    assert why in ran.err


# --- bad input --------------------------------------------------------------------------------------------


def bad(folder: Path) -> None:
    good = sessions.claude_code()
    absurd = good.replace(b'"timestamp": "2026', b'"timestamp": "9026', 3)
    (folder / "torn.jsonl").write_bytes(good[:-100])
    (folder / "empty.jsonl").write_bytes(b"")
    (folder / "binary.jsonl").write_bytes(b"\x00\x01\x02" * 400)
    (folder / "absurd.jsonl").write_bytes(absurd)
    (folder / "unused.jsonl").write_bytes(sessions.claude_code(usage=False))
    (folder / "unknown.jsonl").write_bytes(sessions.claude_code(model="who-knows-1"))
    (folder / "silent.jsonl").write_bytes(good.split(b"\n")[0] + b"\n")


def test_what_is_wrong_is_said_for_each_file_and_the_rest_goes_on(here: Here, recorded: Path) -> None:
    bad(recorded)

    ran = here("replay", str(recorded), str(recorded / "nothing"), "--json")

    wrong = {Path(f["path"]).name: f["errors"] for f in ran.json["files"] if f["errors"]}
    assert {name: errors[-1] for name, errors in wrong.items()} == {
        "torn.jsonl": wrong["torn.jsonl"][-1],
        "empty.jsonl": "the file is empty, or damaged from its beginning on",
        "binary.jsonl": "a binary file, not a session",
        "absurd.jsonl": "line 1: 2 times cannot be: each counts as the one before it",
        "unused.jsonl": "no usage is recorded: tokens are estimated, what was paid is not known",
        "unknown.jsonl": "no price is known for who-knows-1: costs are in base-price tokens alone, and "
        "nothing is compacted by price; --price MODEL gives them a price",
        "silent.jsonl": "no model answered in it: there is nothing to replay",
        "nothing": "there is no such file",
    }
    assert ran.code == 1
    good = next(f for f in ran.json["files"] if f["path"].endswith("claude.jsonl"))
    assert good["turns"] == 4
    unknown = next(f for f in ran.json["files"] if f["path"].endswith("unknown.jsonl"))
    assert unknown["simulated_cost"]["units"] > 0
    assert unknown["simulated_cost"]["amount"] is None


def test_people_are_told_what_is_wrong_on_stderr(here: Here, recorded: Path) -> None:
    bad(recorded)

    ran = here("replay", str(recorded))

    assert ran.code == 1
    assert "empty.jsonl: the file is empty" in ran.err
    assert "all " in ran.out
    assert "empty" not in ran.out


def test_a_price_that_is_asked_for_is_used_for_every_session(here: Here, recorded: Path) -> None:
    (recorded / "unknown.jsonl").write_bytes(sessions.claude_code(model="who-knows-1"))

    words = ["--price", "claude-opus-4-5", "--json"]
    ran = here("replay", str(recorded / "unknown.jsonl"), str(recorded / "claude.jsonl"), *words)

    unknown, known = ran.json["files"]
    assert ran.code == 0
    assert unknown["simulated_cost"] == known["simulated_cost"]


def test_a_folder_without_sessions_is_a_mistake(here: Here, world: World) -> None:
    ran = here("replay", str(world.project))

    assert ran.code == 2
    assert "there is no session" in ran.err


def test_where_there_is_no_session_there_is_one_document_and_no_report(here: Here, world: World) -> None:
    page = world.project / "report.html"

    ran = here("replay", str(world.project), "--json", "--html", str(page))

    assert ran.code == 2
    assert "there is no session" in str(ran.json)
    assert not page.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and links of a Unix")
def test_pipes_and_links_in_a_circle_stop_nothing(here: Here, recorded: Path) -> None:
    os.mkfifo(recorded / "pipe.jsonl")
    (recorded / "circle.jsonl").symlink_to(recorded / "circle.jsonl")

    inside = here("replay", str(recorded), "--json").json["files"]
    named = here("replay", str(recorded / "pipe.jsonl"), str(recorded / "circle.jsonl"), "--json")

    wrong = {Path(file["path"]).name: file["errors"] for file in inside}
    assert "pipe.jsonl" not in wrong
    assert "cannot be opened" in wrong["circle.jsonl"][0]
    assert wrong["claude.jsonl"] == []
    pipe, circle = (file["errors"][0] for file in named.json["files"])
    assert pipe == "not a file"
    assert "cannot be opened" in circle


# --- processes --------------------------------------------------------------------------------------------


def test_several_processes_say_the_same_as_one(here: Here, recorded: Path) -> None:
    one, two = (here("replay", str(recorded), "--jobs", n, "--json").json for n in ("1", "2"))

    for file in (*one["files"], *two["files"], one["total"], two["total"]):
        del file["seconds"]
    assert one == two


@pytest.mark.real
@pytest.mark.skipif(sys.platform == "win32", reason="signals of a terminal")
def test_an_interrupt_ends_it_with_130_and_leaves_no_process(world: World) -> None:
    folder = world.project / "many"
    folder.mkdir()
    for n in range(40):
        (folder / f"{n}.jsonl").write_bytes(sessions.claude_code(rounds=200))

    running = world.start("replay", str(folder), "--jobs", "2")
    group = os.getpgid(running.pid)
    deadline = time.monotonic() + 60
    while len(_members(group)) < 3 and time.monotonic() < deadline:
        assert running.poll() is None, "it ended before it could be interrupted"
    os.killpg(group, signal.SIGINT)
    out, err = running.communicate(timeout=60)

    assert running.returncode == 130
    assert out == b""
    assert b"Traceback" not in err
    deadline = time.monotonic() + 30
    while _members(group) and time.monotonic() < deadline:
        pass  # what only watches over the others ends when it notices that they have
    assert _members(group) == []


def _members(group: int) -> list[int]:
    """The processes of a group that are still alive."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(entry.name))
    return found


# --- the report -------------------------------------------------------------------------------------------


def test_a_report_is_written_beside_what_is_printed(here: Here, recorded: Path, world: World) -> None:
    path = world.project / "report.html"

    ran = here("replay", str(recorded / "claude.jsonl"), "--compare", "--html", str(path))

    page = path.read_text(encoding="utf-8")
    assert ran.code == 0
    assert f"wrote {path}" in ran.err
    assert page.startswith("<!doctype html>")
    assert all(name in page for name in BUILT_IN)


def test_a_sub_agent_stands_behind_the_session_that_it_worked_for(here: Here, world: World) -> None:
    data = sessions.claude_code()
    side = [json.loads(line) for line in sessions.claude_code(1).splitlines()]
    for record in side:
        record |= {"isSidechain": True, "agentId": "ag-7", "uuid": f"s.{record['uuid']}"}
        record["parentUuid"] = record["parentUuid"] and f"s.{record['parentUuid']}"
    path = world.project / "one.jsonl"
    path.write_bytes(data + sessions.jsonl(side))

    ran = here("replay", str(path), "--json")
    told = here("replay", str(path)).out

    files = ran.json["files"]
    assert [(file["agent"], file["turns"]) for file in files] == [(None, 4), ("ag-7", 2)]
    assert ran.json["total"]["turns"] == 6
    assert [line.split("  ")[0] for line in told.splitlines()[1:4]] == ["one", "ag-7 of a-claude", "all 2"]


def test_requests_on_branches_that_were_left_are_said_beside_the_figures(here: Here, world: World) -> None:
    first, *rest = sessions.claude_code().splitlines(keepends=True)
    left = json.loads(rest[-1]) | {"uuid": "left", "parentUuid": "u"}
    left["message"] |= {"id": "m-left"}
    path = world.project / "one.jsonl"
    path.write_bytes(first + sessions.jsonl([left]) + b"".join(rest))

    ran = here("replay", str(path), "--json").json
    told = here("replay", str(path)).out
    report = world.project / "report.html"
    here("replay", str(path), "--html", str(report))

    aside = ran["files"][0]["left_aside"]
    assert (aside["requests"], ran["files"][0]["turns"]) == (1, 4)
    assert aside["paid_cost"]["units"] > 0
    assert ran["total"]["left_aside"] == aside
    assert "left aside: 1 request on branches that were left, paid" in told
    assert "1 request was made on branches that were left" in report.read_text(encoding="utf-8")


def test_a_policy_is_told_which_of_its_flags_change_nothing(
    here: Here, recorded: Path, world: World
) -> None:
    mine = world.project / "mine.toml"
    mine.write_text("[flags]\nthreads = true\nteam = false\nnotes = false\n", encoding="utf-8")
    asked = ("replay", str(recorded / "claude.jsonl"), "--policy", str(mine))
    note = "these flags change nothing in a replay: team, threads"

    more = ("--compare", "--without", "tool_results", "--policy", "balanced")
    ran = here(*asked, *more, "--json").json
    report = world.project / "report.html"
    said = here(*asked, "--html", str(report))

    assert {name: found["notes"] for name, found in ran["policies"].items()} == {
        "append-only": [],
        "mine": [note],
        "mine without tool_results": [note],
        "balanced": [],
        "balanced without tool_results": [],
    }
    assert f"policy mine: {note}" in said.err
    assert said.code == 0
    assert note in report.read_text(encoding="utf-8")
