"""`sevenfold trust`: said by the user, about one folder, and taken back."""

from __future__ import annotations

import json

import pytest
from cli.conftest import Here
from cli.world import World

from sevenfold.cli.startup import MOST_VALUES, list_ignored_settings
from sevenfold.settings import Environment, load_settings


def test_a_trusted_folder_may_allow_what_it_likes(here: Here, world: World) -> None:
    world.write(".sevenfold/settings.json", json.dumps({"permissions": {"allow": ["Bash(touch:*)"]}}))
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


def test_what_changed_since_does_not_count_until_it_is_trusted_again(here: Here, world: World) -> None:
    here("trust")
    rule = {"permissions": {"allow": ["Bash(touch:*)"]}}
    world.write(".sevenfold/settings.json", json.dumps(rule))

    ran = here("-p", "run `touch made`")
    assert not (world.project / "made").exists()
    assert f"{world.project} is not as you trusted it" in ran.err
    assert "not as you trusted it" in here("doctor").out

    again = here("trust", "--json")
    assert again.json["changes"] == ['+ .sevenfold/settings.json: permissions.allow: "Bash(touch:*)"']
    assert again.json["changes"][0] in again.err
    here("-p", "run `touch made`")
    assert (world.project / "made").exists()


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


def test_a_folder_that_is_not_there_is_called_so(here: Here, world: World) -> None:
    ran = here("trust", str(world.top / "nowhere"))

    assert ran.code == 2
    assert ran.err == f"sevenfold: {world.top}/nowhere does not exist\n"
    assert "is not a folder" in here("trust", str(world.write("a.txt", ""))).err


# --- what is to be trusted ------------------------------------------------------------------------------


def proposals(world: World) -> list[str]:
    ignored = load_settings(world.project, Environment.read(world.env)).ignored
    assert ignored
    return list(list_ignored_settings(ignored, world.project))


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        (
            {"hooks": {"Stop": [{"matcher": "Edit", "hooks": [{"command": "a\x1b[2J\n b"}]}]}},
            ["hooks.Stop", "    Edit: a�[2J b"],
        ),
        (
            {"permissions": {"allow": ["Bash(ls:*)", "Edit(/**)"], "deny": ["Read(x)"]}},
            ["permissions.allow", "    Bash(ls:*)", "    Edit(/**)"],
        ),
        (
            {"permissions": {"defaultMode": "bypassPermissions"}},
            ["permissions.mode", "    bypassPermissions"],
        ),
        (
            {"anthropicBaseUrl": "https://elsewhere.example/" + "x" * 200},
            ["anthropicBaseUrl", "    https://elsewhere.example/" + "x" * 73 + "…"],
        ),
        ({"env": {"PATH": "/evil"}}, ["env (a file of the project never sets it)", "    PATH: /evil"]),
    ],
)
def test_every_value_is_shown_before_it_is_trusted(world: World, values: object, lines: list[str]) -> None:
    path = world.write(".sevenfold/settings.json", json.dumps(values))

    assert proposals(world) == [f"{path}:1: {lines[0]}", *lines[1:]]


def test_too_many_values_are_counted(world: World) -> None:
    rules = [f"Bash(a{n}:*)" for n in range(MOST_VALUES + 3)]
    world.write(".sevenfold/settings.json", json.dumps({"permissions": {"allow": rules}}))

    *_, last, rest = proposals(world)

    assert (last, rest) == (f"    {rules[MOST_VALUES - 1]}", "    … and 3 lines more")


def test_values_are_not_read_through_a_link_that_leads_out(world: World) -> None:
    outside = world.top / "outside.json"
    outside.write_text(json.dumps({"model": "secret"}), encoding="utf-8")
    (world.project / ".sevenfold").mkdir()
    (world.project / ".sevenfold" / "settings.json").symlink_to(outside)

    [line] = proposals(world)

    assert "a link that leads out of the project" in line


def test_a_file_that_has_become_unreadable_is_passed_over(world: World) -> None:
    path = world.write(".sevenfold/settings.json", "{")

    assert list(list_ignored_settings([f"{path}:1: hooks.Stop"], world.project)) == [
        f"{path}:1: hooks.Stop"
    ]
