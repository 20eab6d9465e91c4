"""`sevenfold trust`: said by the user, about one folder, and taken back."""

from __future__ import annotations

import json

from cli.conftest import Here
from cli.world import World


def test_a_trusted_folder_may_allow_what_it_likes(here: Here, world: World) -> None:
    world.write(
        ".sevenfold/settings.json", json.dumps({"permissions": {"allow": ["Bash(touch:*)"]}})
    )
    here("-p", "run `touch made`")
    assert not (world.project / "made").exists()

    ran = here("trust")
    assert ran.code == 0
    assert f"{world.project} is trusted" in ran.err
    here("-p", "run `touch made`")
    assert (world.project / "made").exists()


def test_trust_is_taken_back(here: Here, world: World) -> None:
    here("trust", "--json")

    ran = here("trust", "--revoke", "--json")

    assert ran.json == {"path": str(world.project), "trusted": False, "all": []}
    assert "not trusted" in here("doctor").out


def test_another_folder_can_be_named(here: Here, world: World) -> None:
    other = world.top / "other"
    other.mkdir()

    assert here("trust", str(other), "--json").json["all"] == [str(other)]


def test_a_folder_inside_a_trusted_one_cannot_be_taken_out_alone(here: Here, world: World) -> None:
    inner = world.project / "inner"
    inner.mkdir()
    here("trust")

    ran = here("trust", str(inner), "--revoke")

    assert ran.code == 2
    assert f"run: sevenfold trust --revoke {world.project}" in ran.err


def test_what_holds_everything_cannot_be_trusted(here: Here, world: World) -> None:
    ran = here("trust", str(world.user), "--json")

    assert ran.code == 3
    assert ran.json["error"] == "refused"
    assert "Trust the project itself" in ran.json["reason"]
