"""Extraction is charged where a person talked: the product looks for nothing where nobody sat in front."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from replay import sessions

from sevenfold.recordings.finder import ReplayFile
from sevenfold.replay.policies import Policy, load_policy
from sevenfold.replay.runner import ReplayJob, ReplayResult, replay_file
from sevenfold.replay.stand_ins import UNKNOWN
from sevenfold.settings.layers import ExtractionSettings

EAGER = ExtractionSettings(least_requests=0)
OURS = replace(load_policy("balanced"), extraction=EAGER)


def ours(**about: Any) -> bytes:
    """A session of ours whose first line also says this."""
    first, *rest = sessions.sevenfold().splitlines(keepends=True)
    mark = json.loads(first)
    mark["what"]["value"] |= about
    return json.dumps(mark).encode("utf-8") + b"\n" + b"".join(rest)


def replayed(folder: Path, data: bytes, under: Policy = OURS) -> ReplayResult:
    path = folder / "a.jsonl"
    path.write_bytes(data)
    return replay_file(ReplayJob(0, ReplayFile(str(path)), (under,)))


def looks(one: ReplayResult) -> int:
    known = one.by_policy["balanced"].layers.get("extraction")
    return known.requests if known else 0


@pytest.mark.parametrize(
    ("about", "charged"),
    [({"interactive": True}, True), ({"interactive": False}, False), ({"agent": {"name": "x"}}, False)],
)
def test_only_where_a_person_talked_something_is_looked_for(
    about: dict[str, Any], charged: bool, tmp_path: Path
) -> None:
    one = replayed(tmp_path, ours(**about))

    assert bool(looks(one)) == charged
    assert one.notes == ()


def test_a_policy_that_learns_from_scripts_is_charged_for_it(tmp_path: Path) -> None:
    eager = replace(OURS, extraction=replace(EAGER, non_interactive=True))

    assert looks(replayed(tmp_path, ours(interactive=False), eager))


def test_a_file_that_does_not_say_is_charged_and_has_a_note(tmp_path: Path) -> None:
    without = replace(OURS, flags=replace(OURS.flags, extraction=False))

    assert looks(replayed(tmp_path, ours()))
    assert replayed(tmp_path, ours()).notes == (UNKNOWN,)
    assert replayed(tmp_path, ours(interactive="yes")).notes == (UNKNOWN,)
    assert replayed(tmp_path, ours(), without).notes == ()


@pytest.mark.parametrize(
    ("model", "said", "charged"),
    [
        ("a-local-model", "hello", False),
        ("a-local-model", "read the files", True),
        ("claude-sonnet-4-5", "hello", True),
    ],
)
def test_where_tokens_are_free_or_have_no_known_price_a_bare_greeting_is_not_looked_through(
    model: str, said: str, charged: bool, tmp_path: Path
) -> None:
    data = ours(interactive=True, model=model).replace(b"read the files", said.encode())

    one = replayed(tmp_path, data)

    assert one.model == model
    assert bool(looks(one)) == charged


HOUR = replace(OURS, system_ttl="1h")


@pytest.mark.parametrize(
    ("about", "policy", "kept"),
    [
        ({"interactive": True}, OURS, True),
        ({"interactive": False}, OURS, False),
        ({"interactive": False}, HOUR, True),
        ({"agent": {"name": "x"}}, OURS, False),
        ({"agent": {"name": "x"}}, HOUR, False),
        ({"agent": {"kind": "fork"}}, OURS, True),
    ],
)
def test_tools_and_system_prompt_are_kept_for_an_hour_where_the_product_does(
    about: dict[str, Any], policy: Policy, kept: bool, tmp_path: Path
) -> None:
    one = replayed(tmp_path, ours(**about), policy).by_policy["balanced"]

    assert bool(one.usage.cache_write_1h) == kept


def test_a_run_of_one_question_takes_no_notes(tmp_path: Path) -> None:
    notes = replace(OURS, notes=replace(OURS.notes, priced=True, first_at=1))

    usual, once = (replayed(tmp_path, data, notes) for data in (ours(), ours(oneShot=True)))

    assert "session memory" in usual.by_policy["balanced"].layers
    assert "session memory" not in once.by_policy["balanced"].layers


def test_nobody_talks_to_the_agent_of_another_session(tmp_path: Path) -> None:
    lines = [json.loads(line) | {"isSidechain": True} for line in sessions.claude_code().splitlines()]
    alone = [line | {"agentId": "worker"} for line in lines]

    assert looks(replayed(tmp_path, sessions.claude_code()))
    assert looks(replayed(tmp_path, sessions.jsonl(alone))) == 0
