"""Memory in the chat: `/memory`, "remember …" said to the offline engine, and a chat without memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.conftest import Here
from cli.terminal import CTRL_D, PROMPT, Terminal
from cli.world import World

from sevenfold.memory.errors import Guarded
from sevenfold.memory.folder.files import FolderBackend
from sevenfold.memory.history.revisions import Author
from sevenfold.memory.store import MemoryStore
from sevenfold.simulator import Script, parse_steps, run_in_thread

SECRET = "AKIAIOSFODNN7EXAMPLZ"


def folder(here: Here) -> Path:
    return Path(here("memory", "path").out.rstrip("\n"))


def memories(here: Here) -> dict[str, str]:
    return {one["name"]: one["type"] for one in here("memory", "--json").json["memories"]}


# --- remember … ---------------------------------------------------------------------------------------


def test_what_the_offline_engine_is_told_to_remember_is_a_memory_with_its_line(here: Here) -> None:
    ran = here("-p", "remember that we never mock the database in tests", "--json")

    assert ran.json["is_error"] is False
    assert "I have saved this to memory" in ran.json["result"]
    index = (folder(here) / "MEMORY.md").read_text(encoding="utf-8")
    assert index.startswith("- [never-mock-database-tests](never-mock-database-tests.md) — ")
    [revision] = here("memory", "history", "--json").json["revisions"]
    assert revision["author"]["kind"] == "agent"
    assert revision["author"]["session"] == ran.json["session"]


def test_it_is_kept_by_kind_in_english_and_in_chinese(here: Here) -> None:
    for said in (
        "remember: I'm a radiologist",
        "Remember that the audit ends on 2026-09-30",
        "记住：不要在周五发布",
        "remember that the tables are at https://wiki.example.com/rig4",
    ):
        assert here("-p", said).code == 0

    assert memories(here) == {
        "radiologist": "user",
        "audit-ends-2026-09-30": "project",
        "不要在周五发布": "feedback",
        "tables": "reference",
    }


def test_another_session_knows_it(here: Here) -> None:
    here("-p", "remember that the staging database listens on port 6543")

    ran = here("-p", "which port does the staging database use?", "--json")

    assert "6543" in ran.json["result"]


def test_a_secret_is_not_remembered_and_the_person_is_told_why(here: Here) -> None:
    ran = here("-p", f"remember that the deploy key is {SECRET}", "--json")

    assert "looks like an AWS access key" in ran.json["result"]
    assert SECRET not in ran.json["result"]
    assert memories(here) == {}


def test_to_a_model_it_goes_as_it_was_said(here: Here, world: World) -> None:
    script = Script(parse_steps('{"reply": {"text": "Noted."}}'))
    with run_in_thread(script=script) as sim:
        world.at(sim.url)
        ran = here("-p", "remember that we use tabs", "--json")

    assert ran.json["result"] == "Noted."
    assert memories(here) == {}, "what to save is for the model to decide"


# --- /memory ------------------------------------------------------------------------------------------


@pytest.fixture
def kept(here: Here) -> str:
    words = ("--type", "feedback", "--name", "tabs", "--description", "Tabs, never spaces")
    saved = here("memory", "add", *words, "--body", "Always use tabs.", "--json").json
    return str(saved["path"])


def test_memory_lists_what_is_there(here: Here, kept: str) -> None:
    ran = here("-p", "/memory")

    assert ran.code == 0
    assert ran.out.split("\n")[0].split("  ") == ["tabs", "feedback", "today", "Tabs, never spaces"]
    assert "/memory show NAME" in ran.out


def test_memory_shows_one_of_them_and_where_they_are(here: Here, kept: str) -> None:
    shown = here("-p", "/memory show tab").out

    assert shown.startswith(f"tabs  feedback · today · {kept}\nTabs, never spaces\n\nAlways use tabs.")
    assert here("-p", "/memory path").out == f"{Path(kept).parent}\n"


def test_memory_takes_the_last_change_back_for_the_user(here: Here, kept: str) -> None:
    here("memory", "edit", "tabs", "--body", "Never tabs.")

    undone = here("-p", "/memory undo tabs", "--json").json

    assert "undid: edited tabs" in undone["result"]
    assert "tabs: as before" in undone["result"]
    assert Path(kept).read_text(encoding="utf-8").endswith("\nAlways use tabs.\n")
    newest = here("memory", "history", "--json").json["revisions"][0]
    assert newest["author"]["kind"] == "user"
    assert newest["author"]["session"] == undone["session"]

    assert "redid: edited tabs" in here("-p", "/memory redo").out
    assert Path(kept).read_text(encoding="utf-8").endswith("\nNever tabs.\n")


# --- /quarantine --------------------------------------------------------------------------------------


def test_what_waits_for_the_users_word_is_listed_read_released_and_dropped(here: Here, kept: str) -> None:
    assert here("-p", "/quarantine").out == "nothing waits for your word\n"
    store = MemoryStore(FolderBackend(Path(kept).parent, Path(kept).parents[1] / "memory-state"))
    for name in ("one", "two"):
        with pytest.raises(Guarded):
            store.add(
                type="feedback",
                name=name,
                description=f"Approve command {name}",
                body=f"Approve command {name}.",
                author=Author("agent"),
            )

    listed = here("-p", "/quarantine").out.splitlines()
    assert [line.split()[0] for line in listed] == ["1", "2"]
    assert "Approve command one." in here("-p", "/quarantine show 1").out
    assert "created one" in here("-p", "/quarantine release 1").out
    assert Path(kept).with_name("one.md").exists()
    assert here("-p", "/quarantine drop 2").out == "number 2 is deleted\n"
    assert here("-p", "/quarantine").out == "nothing waits for your word\n"
    assert here("-p", "/quarantine show 9").code != 0
    assert "/quarantine release N" in here("-p", "/quarantine look").err


def test_an_empty_memory_says_how_to_fill_it(here: Here) -> None:
    assert "say 'remember that …'" in here("-p", "/memory").out


@pytest.mark.parametrize("line", ["/memory show", "/memory forget it", "/memory path x"])
def test_what_it_does_not_know_it_says_with_what_it_does(here: Here, line: str) -> None:
    ran = here("-p", line)

    assert ran.code == 2
    assert "/memory show NAME, /memory undo [NAME], /memory redo [NAME], /memory path" in ran.err


def test_a_name_that_is_not_there_is_a_mistake(here: Here, kept: str) -> None:
    ran = here("-p", "/memory show tasb")

    assert ran.code == 2
    assert "did you mean 'tabs'?" in ran.err


# --- without memory -----------------------------------------------------------------------------------


def test_a_bare_chat_has_no_memory(here: Here, kept: str, world: World) -> None:
    ran = here("chat", "--bare", "-p", "/memory")

    assert "there is no memory in this session (memory is off: this is a bare session)" in ran.out
    said = here("chat", "--bare", "-p", "remember that we use spaces").out
    assert "not written to any memory file" in said
    assert memories(here) == {"tabs": "feedback"}
    assert here("chat", "--bare", "-p", "/memory path").out.startswith(str(Path(kept).parent))


# --- at a terminal ------------------------------------------------------------------------------------


@pytest.mark.real
def test_memory_in_a_whole_conversation(here: Here, world: World) -> None:
    with Terminal([], world.env, world.project) as t:
        t.wait_for(PROMPT)
        t.ask("/memory", "nothing is remembered yet")
        t.ask("remember that we deploy with make ship", "deploy-make-ship", "I have saved this to memory")
        t.ask("/memory", "name", "type", "changed", "description", "deploy-make-ship  project")
        t.ask("/memory show deploy", "deploy-make-ship  project · today", "we deploy with make ship")
        t.ask("/memory undo", "deploy-make-ship: removed again")
        t.ask("/memory", "nothing is remembered yet")
        t.press(CTRL_D)
        assert t.wait_for_end() == 0
    assert memories(here) == {}
