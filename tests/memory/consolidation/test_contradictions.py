"""A description and a text that cannot both be right; and those that only look like it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path, PurePosixPath

import pytest

from sevenfold.memory.consolidation.contradictions import find_contradiction
from sevenfold.memory.topic_file import Topic, read_topic

DATA = Path(__file__).parents[4] / "shared/data/memory_files_dev.jsonl.gz"


def memory(description: str, body: str) -> Topic:
    return read_topic(f"---\nname: x\ndescription: {description}\n---\n{body}\n".encode(), "x.md")


@pytest.mark.parametrize(
    ("description", "body"),
    [
        ("The API listens on port 8080", "The API listens on port 9090."),
        ("API port 8080", "The port is 9090."),
        ("The API listens on port 8080", "It moved to port 9090 (was 8080)."),
        ("Staging runs Postgres 15", "Since March staging runs Postgres 16."),
        ("Node 18 is required", "Builds fail on old versions. We need Node 20."),
        ("Deploys go out on Friday", "Deploys go out on Tuesday."),
        ("Always mock the database", "Never mock the database."),
        ("The release is on 2026-05-01", "The release is on 2026-06-01."),
    ],
)
def test_another_value_another_day_or_the_opposite_is_a_contradiction(description: str, body: str) -> None:
    found = find_contradiction(memory(description, body))
    assert found is not None
    assert found.description == description
    assert found.text in body


@pytest.mark.parametrize(
    ("description", "body"),
    [
        ("The API listens on port 8080", "The API listens on port 8080."),
        ("Ports of the API", "Port 9090 in production, port 8080 in staging."),
        ("The API listens on port 8080", "Port 8080 in staging. Port 9090 in production."),
        ("How to release", "Step 1: tag. Step 2: push. Step 3: tell the team."),
        ("Use tabs", "Use spaces in YAML."),
        ("Postgres 15", "The old notes said:\n\n> Postgres 14\n"),
        ("", "Anything at all."),
        ("Deploys go out on Friday", "Deploys go out on Friday. Nobody deploys on Monday."),
    ],
)
def test_what_can_both_be_right_is_none(description: str, body: str) -> None:
    assert find_contradiction(memory(description, body)) is None


@pytest.mark.skipif(not DATA.exists(), reason="the development data is not here")
def test_real_memories_give_no_false_alarm() -> None:
    with gzip.open(DATA, "rt", encoding="utf-8") as rows:
        found = [
            row["path"]
            for row in map(json.loads, rows)
            if find_contradiction(read_topic(row["text"].encode(), PurePosixPath(row["path"]).name))
        ]
    assert len(found) <= 1, found
