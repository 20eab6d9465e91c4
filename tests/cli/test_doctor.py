"""`sevenfold doctor`: what is configured, what is missing, how to fix it; and it changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli.conftest import Here
from cli.world import World

from sevenfold.cache.prices import Prices
from sevenfold.session.project import DEFAULT_MODEL
from sevenfold.simulator import run_in_thread
from sevenfold.tools.sandbox import find_landlock_version


def checks(here: Here, *words: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for check in here("doctor", "--json", *words).json["checks"]:
        found.setdefault(check["name"], []).append(check)
    return found


def test_a_fresh_machine_is_fine(here: Here, world: World) -> None:
    ran = here("doctor", "--json")

    assert ran.code == 0
    assert ran.json["ok"]
    found = checks(here)
    assert found["model"][0]["found"] == "offline, because there is no key"
    assert "set ANTHROPIC_API_KEY" in found["endpoint"][0]["fix"]
    assert str(world.project) in found["project"][0]["found"]
    assert not world.home.exists(), "it only looks"


def test_it_looks_at_everything(here: Here) -> None:
    assert set(checks(here)) >= {
        *("python", "sevenfold", "home", "project", "trust", "settings", "model", "key", "endpoint"),
        *("memory", "bash", "git", "rg", "sandbox", "prices", "policy", "flags"),
    }


@pytest.mark.parametrize(
    ("use", "told"), [("unasked", "run unasked"), ("all", "every command"), ("off", "off")]
)
def test_it_says_what_runs_in_the_sandbox(here: Here, world: World, use: str, told: str) -> None:
    world.home.mkdir(parents=True)
    (world.home / "settings.json").write_text(json.dumps({"sandbox": use}), "utf-8")

    (found,) = checks(here)["sandbox"]

    assert (told if find_landlock_version() else "this system has no Landlock") in found["found"]


def test_keys_are_never_shown(here: Here, world: World) -> None:
    with run_in_thread() as sim:
        world.at(sim.url, "sk-very-secret")
        ran = here("doctor")

    assert "ANTHROPIC_API_KEY is set" in ran.out
    assert "sk-very-secret" not in ran.out + ran.err
    assert f"{DEFAULT_MODEL}, because there is a key" in ran.out
    assert f"{sim.url.removeprefix('http://')} can be reached" in ran.out


def test_an_address_where_nobody_is_has_to_be_fixed(here: Here, world: World) -> None:
    with run_in_thread() as sim:
        url = sim.url
    world.at(url)

    ran = here("doctor")

    assert ran.code == 1
    assert "cannot be reached" in ran.out
    assert "--model offline needs none" in ran.out


def test_a_model_without_its_key_has_to_be_fixed(here: Here, world: World) -> None:
    world.settings({"model": "claude-sonnet-4-5"})

    [model] = checks(here)["model"]

    assert model["state"] == "problem"
    assert model["found"] == "claude-sonnet-4-5, because the settings say so"
    assert "set ANTHROPIC_API_KEY" in model["fix"]


def test_a_broken_settings_file_has_to_be_fixed(here: Here, world: World) -> None:
    path = world.settings("{")

    ran = here("doctor")

    assert ran.code == 1
    assert f"FIX   settings   {path}:1" in ran.out


def test_what_is_ignored_is_named(here: Here, world: World) -> None:
    values = {"permissions": {"allow": ["Bash"]}, "nonsense": 1}
    world.write(".sevenfold/settings.json", json.dumps(values))

    found = [check["found"] for check in checks(here)["settings"]]

    assert any("ignored:" in text and "permissions.allow" in text for text in found)
    assert any("nonsense" in text for text in found)


def test_trust_is_no_remedy_for_what_a_project_never_sets(here: Here, world: World) -> None:
    world.write(".sevenfold/settings.json", json.dumps({"memoryDirectory": "/x", "window": 9_000}))

    fixes = {
        key: check["fix"]
        for check in checks(here)["settings"]
        for key in ("memoryDirectory", "window")
        if f": {key}" in check["found"]
    }

    assert fixes == {"memoryDirectory": "", "window": "sevenfold trust, if you know where it comes from"}


def test_an_absurd_value_in_a_folder_that_is_not_trusted_stops_no_command(here: Here, world: World) -> None:
    world.write(".sevenfold/settings.json", json.dumps({"maxSteps": 10**9}))

    assert here("memory", "list").code == 0
    assert any("maxSteps" in check["found"] for check in checks(here)["settings"])


def test_broken_settings_of_a_folder_that_is_not_trusted_stop_no_command(here: Here, world: World) -> None:
    world.write(".sevenfold/settings.json", '{"permissions": {"deny": ["Edit"]}')

    assert here("memory", "list").code == 0
    assert any("not what it denies" in check["found"] for check in checks(here)["settings"])
    here("trust")
    assert here("memory", "list").code == 2


@pytest.mark.parametrize(
    ("keys", "offered", "anyway"),
    [
        (["memoryDirectory"], False, False),
        (["window"], True, False),
        (["memoryDirectory", "window"], True, True),
    ],
)
def test_trust_is_only_offered_for_what_it_would_change(
    here: Here, world: World, keys: list[str], offered: bool, anyway: bool
) -> None:
    values = {"memoryDirectory": "/elsewhere", "window": 9_000}
    world.write(".sevenfold/settings.json", json.dumps({key: values[key] for key in keys}))

    told = " ".join(here("-p", "hello").err.split())

    assert "its settings may only restrict; ignored: " in told
    assert all(f": {key}" in told for key in keys)
    assert ("'sevenfold trust'" in told) is offered
    assert ("Ignored in any case: " in told) is anyway
    assert "memoryDirectory" not in told.partition("If you know")[0] or not offered


def test_a_home_that_others_can_read_is_noted(here: Here, world: World) -> None:
    world.home.mkdir(mode=0o755)

    [home] = checks(here)["home"]

    assert home["state"] == "note"
    assert home["fix"] == f"chmod 700 {world.home}"


def test_flags_that_were_changed_are_named(here: Here, world: World) -> None:
    world.settings({"flags": {"notes": False, "snip": True}})

    assert checks(here)["flags"][0]["found"] == "notes off, snip on"


def test_it_names_the_policy_in_force(here: Here, world: World) -> None:
    assert checks(here)["policy"][0]["found"] == "balanced"
    world.settings({"policy": "thrifty"})
    assert "thrifty" in here("doctor").out


def test_a_missing_shell_has_to_be_fixed(here: Here, world: World) -> None:
    world.variables["PATH"] = str(world.top)

    found = checks(here)

    assert found["bash"][0]["state"] == "problem"
    assert found["git"][0]["state"] == "note"


def test_a_rule_about_a_tool_that_is_not_there_is_named(here: Here, world: World) -> None:
    world.settings({"permissions": {"deny": ["Raed"], "allow": ["Bash(ls:*)"]}})

    found = [check["found"] for check in checks(here)["settings"]]

    assert len(found) == 2
    assert "Raed" in found[1]
    assert "did you mean Read?" in found[1]


def test_prices_have_the_date_of_the_model_in_use(here: Here, world: World) -> None:
    world.settings({"model": "claude-opus-4-1"})
    price = Prices.load(None).of("claude-opus-4-1")
    assert price is not None

    assert checks(here)["prices"][0]["found"].endswith(f"claude-opus-4-1 as of {price.as_of}")

    world.settings({"model": "openai:unheard-of"})
    assert "none is known for openai:unheard-of" in checks(here)["prices"][0]["found"]


def test_memory_is_told_with_its_folder_its_size_and_its_history(here: Here, world: World) -> None:
    [first] = checks(here)["memory"]
    assert first["found"].endswith("/memory (made when first needed)")
    words = ("--type", "user", "--name", "role", "--description", "d", "--body", "A radiologist.")
    here("memory", "add", *words)

    about, history = checks(here)["memory"]

    assert "/memory: 1 memory, index 1 of 200 lines, 22 of 25,000 characters" in about["found"]
    assert history["found"].startswith("the history is whole up to 2")


def test_what_is_wrong_with_memory_is_counted_and_a_damaged_history_is_noticed(
    here: Here, world: World
) -> None:
    words = ("--type", "user", "--name", "role", "--description", "d", "--body", "A radiologist.")
    saved = here("memory", "add", *words, "--json").json
    folder = world.home / "projects"
    [history_file] = folder.glob("*/memory-state/history.sqlite")
    history_file.write_bytes(b"damaged" * 1_000)
    [file] = folder.glob("*/memory/role.md")
    assert str(file) == saved["path"]
    file.unlink()

    about, wrong, history = checks(here)["memory"]

    assert "0 memories" in about["found"]
    assert (wrong["state"], wrong["found"]) == ("note", "to look at: 1 dangling")
    assert wrong["fix"] == "sevenfold memory check"
    assert (history["state"], "damaged" in history["found"]) == ("note", True)
    assert here("doctor").code == 0, "a chat works all the same"


def test_memory_that_is_off_says_why(here: Here, world: World) -> None:
    world.variables["SEVENFOLD_DISABLE_MEMORY"] = "1"

    [only] = checks(here)["memory"]

    assert only["found"].startswith("off, because SEVENFOLD_DISABLE_MEMORY is set")


def test_a_memory_path_that_cannot_be_one_has_to_be_corrected(here: Here, world: World) -> None:
    world.variables["SEVENFOLD_MEMORY_PATH"] = "~"

    [only] = checks(here)["memory"]

    assert (only["state"], "SEVENFOLD_MEMORY_PATH" in only["found"]) == ("problem", True)
    assert here("doctor").code == 1
