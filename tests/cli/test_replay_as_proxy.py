"""`sevenfold replay --as proxy`: what the proxy would have saved, from recorded sessions."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Here
from cli.world import World

Json = dict[str, Any]


def make_session(tool: str, calls: int) -> list[Json]:
    """A list of messages with long results, no two of them alike."""
    messages: list[Json] = [{"role": "user", "content": "Make the reports."}]
    for n in range(calls):
        words = random.Random(n)
        text = "".join(f"{n} {words.randrange(10**9)}\n" for _ in range(1_500))
        use = {"type": "tool_use", "id": f"t{n}", "name": tool, "input": {"command": f"report {n}"}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": text}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return [*messages, {"role": "assistant", "content": "Done."}]


@pytest.fixture
def session(world: World) -> Path:
    path = world.project / "session.json"
    path.write_text(json.dumps(make_session("Bash", 60)), encoding="utf-8")
    return path


def test_the_client_alone_and_through_the_proxy_are_priced(here: Here, session: Path) -> None:
    ran = here("replay", "--as", "proxy", "--price", "claude-opus-5-5", str(session), "--json")

    assert ran.code == 0
    direct, proxy = (ran.json["policies"][name]["files"][0] for name in ("direct", "proxy"))
    assert direct["regret"]["cleared"] == 0
    assert proxy["regret"]["cleared"] > 10
    assert proxy["simulated_cost"]["units"] < 0.85 * direct["simulated_cost"]["units"]
    said = re.search(r"through the proxy .* instead of .* \((-[\d.]+)%\)", ran.err)
    assert said is not None
    share = 100 * (proxy["simulated_cost"]["units"] / direct["simulated_cost"]["units"] - 1)
    assert float(said[1]) == pytest.approx(share, abs=0.06)


def test_tools_of_other_clients_count_as_the_proxy_counts_them(here: Here, world: World) -> None:
    for tool, cleared in (("exec_command", True), ("report", False)):
        path = world.project / f"{tool}.json"
        path.write_text(json.dumps(make_session(tool, 60)), encoding="utf-8")
        ran = here("replay", "--as", "proxy", "--price", "gpt-5.5", str(path), "--json")
        [found] = ran.json["policies"]["proxy"]["files"]
        assert bool(found["regret"]["cleared"]) is cleared


def test_other_policies_are_not_mixed_in(here: Here, session: Path) -> None:
    ran = here("replay", "--as", "proxy", "--policy", "thrifty", str(session))

    assert ran.code == 2
    assert "--as proxy has its own two policies" in ran.err
