"""Requests that are in several files of one replay count once, in any format, however they were copied."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Here
from cli.world import World
from replay import sessions

from sevenfold.core.messages import Message, Text, ToolResult, ToolUse, assistant, user
from sevenfold.core.tokens import Usage
from sevenfold.core.transcript import Mark, Reply, Transcript, Undo

FORMATS = {
    "claude.jsonl": sessions.claude_code(),
    "codex.jsonl": sessions.codex(),
    "messages.json": json.dumps(sessions.messages()).encode("utf-8"),
    "ours.jsonl": sessions.sevenfold(),
}


def pack(path: Path, copy: Path) -> None:
    copy.write_bytes(gzip.compress(path.read_bytes()))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("way", "ending"), [(shutil.copy, ""), (os.link, ""), (pack, ".gz")])
def test_a_copy_of_a_file_without_request_ids_counts_once_and_says_so(
    here: Here, world: World, name: str, way: Callable[[Path, Path], Any], ending: str
) -> None:
    path, copy = world.project / name, world.project / f"z{name}{ending}"
    path.write_bytes(FORMATS[name])
    way(path, copy)

    ran = here("replay", str(path), str(copy), "--json").json

    one, other = ran["files"]
    assert (ran["total"]["turns"], other["turns"]) == (one["turns"], 0)
    assert one["turns"] > 1
    assert any("requests are in another file too" in note for note in other["notes"])


def test_two_sessions_that_only_begin_alike_are_no_copies(here: Here, world: World) -> None:
    messages = sessions.messages()
    for name, words in (("a", "hello"), ("b", "good evening")):
        text = json.dumps([{"role": "user", "content": words}, *messages[2:]])
        (world.project / f"{name}.json").write_text(text, encoding="utf-8")

    ran = here("replay", ".", "--json").json

    assert [one["turns"] for one in ran["files"]] == [2, 2]


def write_forked_work(path: Path, rounds: int) -> None:
    """A session with a sub-agent and a branch that was left; nothing in it has a request id."""
    own = [json.loads(line) for line in sessions.claude_code(rounds).splitlines()]
    parts = [own]
    for n, more in ((2, {"isSidechain": True, "agentId": "ag-7"}), (1, {})):
        part = [json.loads(line) | more for line in sessions.claude_code(n).splitlines()]
        for line in part:
            line["uuid"] = f"{n} {line['uuid']}"
            line["parentUuid"] = line["parentUuid"] and f"{n} {line['parentUuid']}"
            if "id" in line["message"]:
                line["message"]["id"] = f"{n} {line['message']['id']}"
        parts.append(part)
    side, left = parts[1:]
    left[1]["parentUuid"] = own[0]["uuid"]
    path.write_bytes(sessions.jsonl([own[0], *side, *left[1:], *own[1:]]))


@pytest.mark.parametrize("rounds", [3, 5])
def test_sub_agents_and_branches_that_were_left_count_once_too(
    here: Here, world: World, rounds: int
) -> None:
    write_forked_work(world.project / "a.jsonl", 3)
    write_forked_work(world.project / "b.jsonl", rounds)

    ran = here("replay", ".", "--policy", "append-only", "--json").json
    alone = here("replay", "b.jsonl", "--policy", "append-only", "--json").json

    assert ran["total"]["turns"] == alone["total"]["turns"] + (rounds > 3)  # a last reply of its own
    assert alone["total"]["left_aside"]["requests"] == 2
    assert ran["total"]["left_aside"] == alone["total"]["left_aside"]


def test_what_was_rewound_in_a_copy_counts_once(here: Here, world: World) -> None:
    log: list[bytes] = []
    transcript = Transcript(lambda: sessions.BEGAN, log.append)
    transcript.add(Mark("session", {"format": 1, "model": "claude-sonnet-4-5"}), by="session")
    transcript.add(user("go"), by="user")
    gone = transcript.add(Reply(assistant(Text("gone")), Usage(10, 900, 5_000, 20)), by="model")
    transcript.add(Undo(frozenset(gone)), by="session")
    transcript.add(Reply(assistant(Text("done")), Usage(10, 900, 5_000, 20)), by="model")
    for name in ("a", "b"):
        (world.project / f"{name}.jsonl").write_bytes(b"".join(log))

    ran = here("replay", ".", "--json").json

    assert (ran["total"]["turns"], ran["total"]["left_aside"]["requests"]) == (1, 1)


class OwnFile:
    """A session file of ours, which can be copied at any time."""

    def __init__(self, lines: Sequence[bytes] = ()) -> None:
        self.lines, now = list(lines), count(sessions.BEGAN + len(lines))
        self.log = Transcript.load(b"".join(lines), lambda: next(now), self.lines.append)

    def ask(self) -> list[int]:
        """A question, a call with its result and an answer; returns their entries."""
        id = f"u{len(self.lines)}"
        call = assistant(Text("reading"), ToolUse(id, "Read", {"file_path": "/w/a.py"}))
        found = Message("user", (ToolResult(id, "as it is"),))
        answer = assistant(Text("it says: as it is"))
        usage = Usage(10, 900, 5_000 + 100 * len(self.lines), 20)
        return [
            *self.log.add(user("read it"), by="user"),
            *self.log.add(Reply(call, usage, "tool_use"), by="model"),
            *self.log.add(found, by="tools"),
            *self.log.add(Reply(answer, usage), by="model"),
        ]

    def rewind(self, *turns: list[int]) -> None:
        self.log.add(Undo(frozenset(chain(*turns))), by="rewind")


@pytest.mark.parametrize("from_beginning", [False, True])
@pytest.mark.parametrize("goes_on", [0, 3], ids=["the copy ends there", "the copy goes on"])
def test_what_was_rewound_behind_a_copy_counts_once(
    here: Here, world: World, from_beginning: bool, goes_on: int
) -> None:
    original = OwnFile()
    original.log.add(Mark("session", {"format": 1, "model": "claude-sonnet-4-5"}), by="session")
    turns = [original.ask(), original.ask()]
    copy = OwnFile(original.lines)
    original.rewind(*turns[0 if from_beginning else 1 :])
    original.ask()
    for _ in range(goes_on):
        copy.ask()
    for name, file in (("original", original), ("copy", copy)):
        (world.project / f"{name}.jsonl").write_bytes(b"".join(file.lines))

    total = here("replay", ".", "--policy", "append-only", "--json").json["total"]

    rewound = 0 if goes_on else 2 * (1 + from_beginning)
    assert (total["turns"], total["left_aside"]["requests"]) == (2 * (3 + goes_on) - rewound, rewound)


def write_fork(path: Path, rounds: int, of: int) -> None:
    """A session whose requests have ids; the first ones are those of every such session."""
    lines = [json.loads(line) for line in sessions.claude_code(rounds).splitlines()]
    for line in lines:
        line["sessionId"] = path.stem
        if line["type"] == "assistant":
            number = line["message"]["id"]
            shared = number.removeprefix("m") in map(str, range(of))
            line["requestId"] = number if shared else f"{path.stem} {number}"
    path.write_bytes(sessions.jsonl(lines))


def test_requests_that_a_fork_copied_are_paid_once(here: Here, world: World) -> None:
    folder = world.project / "forks"
    folder.mkdir()
    write_fork(folder / "longer.jsonl", 6, of=4)
    write_fork(folder / "fork.jsonl", 5, of=4)
    words = ("--policy", "append-only", "--json")

    ran = here("replay", str(folder), *words)

    files = {Path(file["path"]).stem: file for file in ran.json["files"]}
    alone = here("replay", str(folder / "longer.jsonl"), *words).json["files"][0]
    fork = here("replay", str(folder / "fork.jsonl"), *words).json["files"][0]
    assert files["longer"]["turns"] == alone["turns"] == 7
    assert (files["fork"]["turns"], fork["turns"]) == (2, 6)
    assert files["fork"]["paid_cost"]["units"] < 0.5 * fork["paid_cost"]["units"]
    assert files["fork"]["notes"] == [
        "the first 4 of 6 requests are in another file too, from which this one was copied or forked: "
        "they count there"
    ]
    assert ran.code == 0


def test_a_file_that_another_one_goes_on_from_counts_there_alone(here: Here, world: World) -> None:
    folder = world.project / "resumed"
    folder.mkdir()
    write_fork(folder / "later.jsonl", 6, of=6)
    write_fork(folder / "first.jsonl", 3, of=6)
    lines = (folder / "first.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "first.jsonl").write_bytes(b"".join(lines[:-1]))  # the later file has no such last reply
    page = world.project / "report.html"

    ran = here("replay", str(folder), "--policy", "append-only", "--json")
    told = here("replay", str(folder), "--html", str(page))

    first, later = ran.json["files"]
    assert (first["turns"], later["turns"], ran.json["total"]["turns"]) == (0, 7, 7)
    assert first["notes"][0].startswith("all 3 requests are in another file too")
    assert (ran.code, told.code) == (0, 0)
    assert "first: all 3 requests are in another file too" in told.err
    assert "all 3 requests are in another file too" in page.read_text(encoding="utf-8")


def test_of_a_fork_regret_layers_recall_and_dreams_count_from_its_own_requests_on(
    here: Here, world: World
) -> None:
    write_fork(world.project / "longer.jsonl", 40, of=24)
    write_fork(world.project / "fork.jsonl", 26, of=24)
    words = ("--policy", "clear-every-10", "--json")

    fork, longer = here("replay", ".", *words).json["files"]
    alone = here("replay", "fork.jsonl", *words).json["files"][0]

    assert longer["turns"] > fork["turns"] == 3
    assert (alone["regret"]["cleared"], fork["regret"]["cleared"]) == (20, 10)
    own, whole = (one["layers"]["microcompaction"] for one in (fork, alone))
    assert (whole["times"], own["times"]) == (2, 1)
    assert 0 < own["saved"] < whole["saved"]
    assert 0 < fork["recall_cost"] < 0.2 * alone["recall_cost"]
    assert (alone["dream_cost"] > 0, fork["dream_cost"]) == (True, 0)
