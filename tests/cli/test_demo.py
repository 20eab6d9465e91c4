"""`make demo` does its main job, and what it prints is what happened."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli.world import World

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.real
def test_the_demo_shows_recall_a_cleared_result_a_compaction_a_dream_and_an_undo(world: World) -> None:
    ran = world.run("demo", "--json")

    assert ran.code == 0, ran.err
    found = ran.json
    assert found["resume"]["identical"]
    assert len(set(found["resume"]["sha256"])) == 1
    assert found["total"]["from_cache"] > 0.8
    assert found["total"]["simulated_cost"] < found["total"]["simulated_cost_without_cache"] / 2
    morning = found["morning"]
    assert morning["cleared"] >= 2, "the night was long enough for the cache to expire"
    assert morning["freed"] > 2_000
    assert "tokens, kept in" in morning["marker"]
    assert morning["after"] < morning["before"]
    assert "8471" in morning["answer"], "the summary still knows the port"
    replies = {turn["prompt"]: turn["reply"] for turn in found["turns"]}
    assert "OK" in replies["run `python3 -B -m unittest -q`"], "the mended test passes"
    assert "8471" in replies["which port does the till listen on?"]
    days = found["days"]
    assert days["saved"][0] in days["recalled"], "what one day taught, the next one knows"
    assert "whole cents" in days["reply"]
    assert days["dream"] == "completed"
    assert days["merged"] == ["prices-in-cents went into never-round-prices-keep"]
    assert (days["facts_lost"], days["refunds_kept"]) == (0, True)
    assert days["undone"], "every memory is as it was before the dream"
    agents = found["agents"]
    assert [fork["from_cache"] > 0.95 for fork in agents["forks"]] == [True, True]
    assert "TAX_RATE = 0.08" in agents["forks"][0]["said"]
    assert "2_001" in agents["forks"][1]["said"]
    assert "scout" in agents["message"]
    assert "8471" in agents["meanwhile"], "the conversation went on while scout worked"
    assert agents["scout"] == "done"
    assert "lead says: the audit of the till is on Friday" in agents["read"]
    assert "Agent scout found:" in agents["told"]
    assert not world.home.exists(), "all of it was thrown away"


@pytest.mark.real
def test_the_demo_keeps_what_it_did_where_it_is_told_to_and_prints_what_the_readme_shows(
    world: World,
) -> None:
    ran = world.run("demo", "--home", str(world.home))

    assert ran.code == 0, ran.err
    assert "identical, byte for byte" in ran.out
    spared = dict(re.findall(r"layer (\d), .*: ([\d,]+) tokens were not sent", ran.out))
    assert list(spared) == ["1", "2", "4"], "each of them had something to do, and somebody asked after it"
    assert "0 facts lost" in ran.out
    assert "are as they were, byte for byte" in ran.out
    assert (world.home / "demo-project" / "till.py").read_text(encoding="utf-8").count("0.08") == 1
    assert len(world.transcripts) == 4
    [shown] = re.findall(r"````text\n(.*?)````", README.read_text(encoding="utf-8"), re.DOTALL)
    printed = shape(ran.out)
    assert [line for line in shape(shown) if line not in printed and line.strip() != "…"] == []
    assert world.run("demo", "--home", str(world.home)).code == 0, "it can be run again"


def shape(text: str) -> list[str]:
    """The lines without their figures, which depend on how long the path of the folder is."""
    return [re.sub(r"[0-9a-f]{32}|[\d.,]+", "#", line).rstrip() for line in text.splitlines()]
