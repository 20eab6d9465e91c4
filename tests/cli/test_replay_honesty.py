"""`sevenfold replay` says what it leaves out, writes over nothing, and ends in order."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.conftest import Here
from cli.terminal import Terminal
from cli.world import World
from replay import sessions

from benchmarks.policy.replays import SessionJob, replay_session
from sevenfold.cli.commands.replay import (
    check_report,
    describe_promise,
    format_columns,
    format_replay_tables,
)
from sevenfold.core.errors import Mistake
from sevenfold.replay.outcome import TimeSpent
from sevenfold.replay.policies import load_policy
from sevenfold.replay.results import LayerFigure, ReplayCost, ReplayFigures
from sevenfold.replay.runner import ReplayResult


@pytest.fixture
def session(world: World) -> Path:
    path = world.project / "claude.jsonl"
    path.write_bytes(sessions.claude_code())
    return path


# --- names ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="names of files that are no text")
def test_a_file_whose_name_is_no_text_is_replayed(here: Here, world: World) -> None:
    name = os.fsdecode(b"nu\xff.jsonl")
    (world.project / name).write_bytes(sessions.claude_code())

    ran = here("replay", name, "--json")
    told = here("replay", name)

    assert (ran.code, told.code) == (0, 0)
    assert ran.json["files"][0]["path"].startswith("nu\ufffd")
    assert ran.json["files"][0]["turns"] == 4


def test_a_line_break_in_a_name_breaks_no_line(here: Here, world: World) -> None:
    (world.project / "a\nb.jsonl").write_bytes(b"")
    mine = world.project / "mine.toml"
    mine.write_text('name = "x\\ny"\n[flags]\nteam = false\n', encoding="utf-8")
    good = world.project / "good.jsonl"
    good.write_bytes(sessions.claude_code())

    ran = here("replay", ".", "--compare", "--policy", str(mine), "--policy", "balanced")

    assert "a b.jsonl: the file is empty" in ran.err
    assert "policy x y: these flags change nothing" in ran.err
    assert any(line.startswith("x y ") for line in ran.out.splitlines())


# --- one measure ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "by"), [("specified", "notes"), ("append-only", "summary")])
def test_a_session_costs_here_what_it_costs_in_the_benchmark_and_wherever_files_go(
    here: Here, world: World, policy: str, by: str
) -> None:
    path = world.project / "long.jsonl"
    path.write_bytes(sessions.claude_code(rounds=190))
    [measured] = replay_session(SessionJob("a/a", path, (load_policy(policy),)))

    for folder in (world.project / "t", world.project / ("t" * 100)):
        folder.mkdir()
        world.variables["TMPDIR"] = str(folder)
        [found] = here("replay", str(path), "--policy", policy, "--json").json["files"]

        assert {one["by"] for one in found["compactions"]} == {by}
        assert found["simulated_cost"]["units"] == pytest.approx(measured.cost, rel=1e-12)
        assert found["paid_cost"]["units"] == pytest.approx(measured.paid, rel=1e-12)
        assert (found["turns"], found["extra_requests"]) == (measured.turns, measured.extra)
        assert found["regret"]["large_cleared"] == measured.removed
        assert found["recall_cost"] + found["dream_cost"] == pytest.approx(measured.memory)


# --- policies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["keep_warm", "snip", "pre_cold", "precompute", "collapse", "micro_time"])
def test_what_is_off_cannot_be_left_out(here: Here, session: Path, word: str) -> None:
    ran = here("replay", str(session), "--compare", "--without", word)

    assert ran.code == 2
    assert f"{word} is off in balanced, so leaving it out changes nothing" in ran.err
    assert "tool_results, micro, notes, compaction, extraction" in ran.err


def test_a_row_that_equals_another_says_so(here: Here, session: Path) -> None:
    words = ("--policy", "append-only", "--policy", "balanced", "--without", "extraction")

    ran = here("replay", str(session), "--compare", *words, "--json").json["policies"]

    assert {name: one["notes"] for name, one in ran.items()} == {
        "append-only": [],
        "append-only without extraction": [
            "extraction is off in append-only, so this is append-only itself"
        ],
        "balanced": [],
        "balanced without extraction": [],
    }


def test_a_policy_without_compaction_says_what_it_does_instead(
    here: Here, world: World, session: Path
) -> None:
    mine = world.project / "mine.toml"
    mine.write_text("[flags]\ncompact = false\n", encoding="utf-8")

    ran = here("replay", str(session), "--policy", str(mine))

    assert "the compactions of the recording are carried out, and no notes are kept" in ran.err


# --- prices -----------------------------------------------------------------------------------------------


def test_a_price_that_was_asked_for_is_named_beside_what_was_paid(here: Here, session: Path) -> None:
    words = ("--price", "claude-haiku-4-5")

    plain = here("replay", str(session), "--json").json["files"][0]
    asked = here("replay", str(session), *words, "--json").json["files"][0]
    told = here("replay", str(session), *words).out

    assert (plain["paid_at"], asked["paid_at"]) == (None, "claude-haiku-4-5")
    assert asked["paid_cost"]["amount"] < plain["paid_cost"]["amount"]
    assert "paid is what was recorded, priced as claude-haiku-4-5: not what was paid then" in told


def test_a_list_that_names_no_model_is_no_error(here: Here, world: World) -> None:
    path = world.project / "list.json"
    path.write_text(json.dumps(sessions.messages()), encoding="utf-8")

    ran = here("replay", str(path), "--json")

    assert ran.code == 0
    [file] = ran.json["files"]
    assert file["errors"] == []
    assert any(note.startswith("it names no model") for note in file["notes"])


@pytest.mark.parametrize("others", [(), (("who-knows", 25),)], ids=["priced", "one without a price"])
def test_percent_and_dollars_of_several_models_agree(
    here: Here, world: World, others: tuple[tuple[str, int], ...]
) -> None:
    for model, rounds in (("claude-opus-4-5", 1), ("claude-haiku-4-5", 40), *others):
        (world.project / f"{model}.jsonl").write_bytes(sessions.claude_code(rounds, model=model))
    policy = ("--policy", "clear-every-10")

    total = here("replay", str(world.project), *policy, "--json").json["total"]
    page = world.project / "report.html"
    told = here("replay", str(world.project), *policy, "--html", str(page)).out

    cost, paid = total["simulated_cost"], total["paid_cost"]
    assert abs(cost["units"] / paid["units"] - cost["amount"] / paid["amount"]) > 0.001
    assert total["of_paid"] == pytest.approx(cost["amount"] / paid["amount"], abs=1e-4)
    assert f"{100 * total['of_paid']:.1f}%" in next(
        line for line in told.splitlines() if line.startswith(f"all {2 + len(others)} ")
    )
    change = cost["amount"] / paid["amount"] - 1
    assert f"{abs(change):.1%} (${abs(paid['amount'] - cost['amount']):.2f})" in page.read_text("utf-8")


def test_the_promise_of_the_proxy_gives_the_percent_of_its_dollars() -> None:
    def figures(units: float, amount: float) -> ReplayFigures:
        return ReplayFigures(cost=ReplayCost(units, amount, "USD"), files=1, priced_files=1)

    dear = {"direct": figures(1_000, 10.0), "proxy": figures(500, 5.0)}
    cheap = {"direct": figures(9_000, 10.0), "proxy": figures(9_000, 10.0)}
    done = [ReplayResult(number=n, path="a", by_policy=one) for n, one in enumerate((dear, cheap))]

    assert describe_promise(done).startswith("through the proxy 9.5k $15.00 instead of 10k $20.00 (-25.0%)")


# --- paths that are not there -----------------------------------------------------------------------------


def test_where_nothing_could_be_replayed_no_report_is_written(here: Here, world: World) -> None:
    (world.project / "empty.jsonl").write_bytes(b"")
    page = world.project / "report.html"
    page.write_text("<html>of last week", encoding="utf-8")

    ran = here("replay", "empty.jsonl", "nowhere.jsonl", "--html", str(page))

    assert ran.code == 1
    assert "empty.jsonl: the file is empty" in ran.err
    assert f"nothing was replayed: {page} was not written" in ran.err
    assert page.read_text(encoding="utf-8") == "<html>of last week"


def test_where_no_path_exists_nothing_is_written(here: Here, world: World) -> None:
    page = world.project / "report.html"

    ran = here("replay", "nowhere.jsonl", "gone", "--html", str(page))

    assert ran.code == 2
    assert "nowhere.jsonl, gone: there is no such file or folder" in ran.err
    assert "wrote" not in ran.err
    assert not page.exists()


def test_a_report_says_that_a_named_path_is_missing(here: Here, world: World, session: Path) -> None:
    page = world.project / "report.html"

    ran = here("replay", str(session), "nowhere.jsonl", "--html", str(page))

    assert ran.code == 1
    assert "nowhere.jsonl: there is no such file" in ran.err
    assert "report.html, without 1 file that could not be replayed" in ran.err
    assert "there is no such file" in page.read_text(encoding="utf-8")


# --- beside append-only, and windows apart ----------------------------------------------------------------


@pytest.fixture
def mixed(world: World) -> Path:
    """Two sessions in the usual window and one in a large one."""
    folder = world.project / "mixed"
    folder.mkdir()
    for name, rounds, model in (
        ("a", 3, "claude-opus-4-5"), ("b", 30, "claude-opus-4-5"), ("c", 3, "claude-opus-4-6")
    ):  # fmt: skip
        (folder / f"{name}.jsonl").write_bytes(sessions.claude_code(rounds, model=model))
    return folder


def test_compared_policies_stand_beside_append_only_with_windows_apart(here: Here, mixed: Path) -> None:
    words = ("--compare", "--policy", "clear-every-10")

    policies = here("replay", str(mixed), *words, "--json").json["policies"]
    told = here("replay", str(mixed), *words).out

    assert list(policies) == ["append-only", "clear-every-10"]
    ours, base = policies["clear-every-10"], policies["append-only"]
    amounts = [of["total"]["simulated_cost"]["amount"] for of in (ours, base)]
    assert ours["total"]["of_append_only"] == pytest.approx(amounts[0] / amounts[1], abs=1e-4)
    assert base["total"]["of_append_only"] == 1.0
    assert ours["total"]["compared_files"] == 3
    dearer = sum(file["of_append_only"] > 1.02 for file in ours["files"])
    assert ours["total"]["dearer_files"] == dearer
    assert ours["total"]["summaries_per_100"] == 0.0
    usual, large = ours["total"]["windows"]
    assert (usual["window"], usual["files"], usual["sources"]) == (200_000, 2, {"model": 2})
    assert (large["window"], large["files"]) == (1_000_000, 1)
    assert [(f["window"], f["window_source"]) for f in ours["files"]] == [
        (200_000, "model"), (200_000, "model"), (1_000_000, "model")
    ]  # fmt: skip
    assert "2 sessions in a window of 200k (window: model 2)" in told
    assert "1 session in a window of 1M (window: model 1)" in told
    assert "3 sessions (window: model 3)" in told
    assert "of append-only" in told
    assert "summaries/100" in told


def test_sessions_are_listed_by_cost_and_the_report_has_the_same(here: Here, mixed: Path) -> None:
    page = mixed.parent / "report.html"
    told = here("replay", str(mixed), "--policy", "append-only", "--html", str(page)).out

    rows = [line.split()[0] for line in told.splitlines() if line[:1] in ("a", "b", "c")]
    assert rows[:1] == ["b"]
    assert [row for row in rows if row == "all"] == ["all"] * 3, "each window, and all"
    html = page.read_text(encoding="utf-8")
    assert "1M (model)" in html
    assert html.index('href="#s1"') < html.index('href="#s0"'), "the dearest first"


def test_a_window_that_is_not_known_is_said_for_the_file(here: Here, world: World) -> None:
    path = world.project / "strange.jsonl"
    path.write_bytes(sessions.claude_code(model="who-knows"))
    page = world.project / "report.html"

    ran = here("replay", str(path), "--price", "claude-opus-4-5", "--html", str(page))

    note = "the window of who-knows is not known: replayed in 200,000 tokens"
    assert f"strange: {note}" in ran.err
    assert "200k unknown" in ran.out
    assert note in page.read_text(encoding="utf-8")


# --- the report -------------------------------------------------------------------------------------------


def test_a_report_is_written_over_no_session_and_nothing_that_is_no_page(
    here: Here, world: World, session: Path
) -> None:
    notes, page = world.project / "notes.html", world.project / "old.html"
    notes.write_text("buy milk", encoding="utf-8")
    page.write_text("<!DOCTYPE html><p>old", encoding="utf-8")
    link = world.project / "link.html"
    link.symlink_to(session)

    onto = {
        path: here("replay", str(session), "--html", str(path)) for path in (session, link, notes, page)
    }

    assert {path.name: ran.code for path, ran in onto.items()} == {
        "claude.jsonl": 2, "link.html": 2, "notes.html": 2, "old.html": 0,
    }  # fmt: skip
    assert "that is one of the sessions" in onto[session].err
    assert "that is one of the sessions" in onto[link].err
    assert "no HTML page, and it is left as it is" in onto[notes].err
    assert session.read_bytes() == sessions.claude_code()
    assert notes.read_text(encoding="utf-8") == "buy milk"
    assert "Sevenfold replay" in page.read_text(encoding="utf-8")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of a Unix")
def test_a_pipe_is_no_place_for_a_report(here: Here, world: World, session: Path) -> None:
    pipe = world.project / "pipe.html"
    os.mkfifo(pipe)

    ran = here("replay", str(session), "--html", str(pipe))

    assert ran.code == 2
    assert "that is no regular file; name a file to write the report to" in ran.err
    assert pipe.is_fifo()


@pytest.mark.skipif(sys.platform == "win32", reason="devices of a Unix")
def test_nothing_among_the_devices_is_a_place_for_a_report() -> None:
    """Asked without writing: a page in the place of a device would be missed by everybody."""
    for path in ("/dev/null", "/dev/stdout", "/dev/no-such-device.html"):
        with pytest.raises(Mistake, match="that is no regular file"):
            check_report(Path(path), [])


# --- numbers ----------------------------------------------------------------------------------------------


def shown(figures: ReplayFigures, width: int | None = None) -> str:
    one = ReplayResult(number=0, path="a-long-name-of-a-session.jsonl", by_policy={"mine": figures})
    return format_replay_tables([one], ["mine"], width)


@pytest.mark.parametrize(
    ("amount", "told"),
    [(0.23587875, "$0.24"), (0.0123, "$0.0123"), (0.0, "$0.00"), (12.345, "$12.35"), (-0.004, "-$0.0040")],
)
def test_money_has_no_more_digits_than_it_was_rounded_to(amount: float, told: str) -> None:
    text = shown(ReplayFigures(cost=ReplayCost(1.0, amount, "USD"), files=1))

    assert f" {told} " in text


def test_what_is_below_nothing_is_written_like_what_is_above() -> None:
    text = shown(ReplayFigures(layers={"microcompaction": LayerFigure(1, 5, saved=-14_700.0, cost=200.0)}))

    assert re.search(r"-14\.7k +200 +-14\.9k", text)


def test_a_narrow_terminal_gets_fewer_columns_and_is_told_which(here: Here, session: Path) -> None:
    wide, narrow = shown(ReplayFigures(files=1)), shown(ReplayFigures(files=1), 60)

    assert "no room for" not in wide
    table = narrow.split("\n\n")[0]
    assert all(len(line) <= 60 for line in table.splitlines()[:2])
    assert "no room for: by tokens, sent" in table
    assert "of paid" in table.splitlines()[0]
    assert format_columns(["a", "b"], [["x", "12"]]) == "a   b\nx  12"


def test_it_says_what_is_charged_and_what_is_not(here: Here, session: Path) -> None:
    told, read = here("replay", str(session)), here("replay", str(session), "--json")

    assert "not charged: the status of agents" in told.out
    assert "150 tokens of answer, and one more with 600 where something lasting was said" in told.out
    assert "extraction after each turn" not in told.out
    assert read.json["not_charged"] == "the status of agents"
    assert "extraction" in read.json["charged"]
    assert "k and M: thousand and million base-price tokens" in told.out


def test_recall_and_dreams_stand_beside_the_cost(here: Here, session: Path) -> None:
    whole = here("replay", str(session), "--json").json["total"]
    less = here("replay", str(session), "--without", "recall", "--without", "dream", "--json").json["total"]
    told = here("replay", str(session))

    assert whole["recall_cost"] > 0
    assert whole["dream_cost"] > 0
    assert (less["recall_cost"], less["dream_cost"]) == (0, 0)
    assert less["simulated_cost"] == whole["simulated_cost"]
    assert "recall (350 tokens for each thing that the user says) and dreams" in told.out
    assert told.out.splitlines()[0].rstrip().endswith("recall  dreams")


def test_our_own_time_is_told_as_far_as_there_was_any() -> None:
    spent = TimeSpent(parsing=0.0123, layers=0.00001, simulator=2.34)

    assert "our time: reading 12 ms, simulator 2.3 s\n" in shown(ReplayFigures(spent=spent))
    assert "our time" not in shown(ReplayFigures())


# --- how it ends ------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_a_full_disk_is_one_sentence(world: World, session: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "sevenfold", "replay", str(session), "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=world.env,
            cwd=world.project,
            timeout=60,
            check=False,
        )

    assert ran.returncode == 1
    assert ran.stderr.decode() == "sevenfold: No space left on device\n"


@pytest.mark.real
@pytest.mark.skipif(sys.platform == "win32", reason="signals of a Unix")
def test_being_ended_leaves_nothing_behind(world: World) -> None:
    for n in range(2):
        (world.project / f"{n}.jsonl").write_bytes(sessions.claude_code(rounds=1_500))
    scratch = world.project / "scratch"
    scratch.mkdir()
    world.variables["TMPDIR"] = str(scratch)

    with Terminal(("replay", ".", "--jobs", "2"), world.env, world.project) as terminal:
        terminal.wait_for("requests/s")
        os.kill(terminal.process.pid, signal.SIGTERM)

        assert terminal.wait_for_end() == 128 + signal.SIGTERM
        assert "Traceback" not in terminal.text
    assert list(scratch.iterdir()) == []
