"""A chat for which no model is set up offers what is there; without a terminal nothing is asked."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
from cli.conftest import Here
from cli.terminal import CTRL_C, DOWN, ENTER, ESCAPE, PROMPT, UP, Terminal
from cli.world import World
from prompt_toolkit import PromptSession
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from sevenfold.cli.chat import model_offer
from sevenfold.cli.chat.model_offer import ModelChoice, ModelOffer, find_model_files, list_served_models
from sevenfold.cli.startup import CommandContext
from sevenfold.core.errors import SettingsError
from sevenfold.settings import Environment
from sevenfold.settings.environment import keep_key, read_kept_keys
from sevenfold.settings.place import TrustedFolders
from sevenfold.simulator import run_in_thread
from sevenfold.storage.places import find_places

pytestmark = pytest.mark.real
QUESTION = "No model is set up yet; choose one"
KEY = "sk-ant-of-this-test"


def at_terminal(world: World, *words: str, columns: int = 120) -> Terminal:
    return Terminal(words, world.env, world.project, columns, offers_models=True)


def pick(t: Terminal, row: str) -> None:
    """Type the beginning of a row, and take it."""
    t.wait_for(QUESTION)
    t.press(row)
    t.wait_for(row)
    t.press(ENTER)


@contextmanager
def serve(answer: bytes, status: int = 200) -> Iterator[int]:
    """A server on loopback that answers everything alike; its port."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# --- what is asked --------------------------------------------------------------------------------------


def test_the_offline_engine_says_in_one_sentence_what_it_is(world: World) -> None:
    with at_terminal(world) as t:
        pick(t, "the offline engine")
        t.wait_for("Keep this in settings.json", "[y/N]")
        t.line("n")
        t.wait_for("· offline ·", "it reads, edits, searches and runs", "it cannot reason", PROMPT)
        t.ask("write a poem", "I have no rule for “write a poem”", "rules without a language model")
        t.ask("write another", "I have no rule for “write another”.")
        t.line("/exit")
        assert t.wait_for_end() == 0
    assert t.screen.count("rules without a language model") == 1
    assert not (world.home / "settings.json").exists()


def test_what_was_kept_is_not_asked_again(world: World) -> None:
    with at_terminal(world) as t:
        pick(t, "the offline engine")
        t.wait_for("[y/N]")
        t.line("y")
        t.wait_for(PROMPT)
        t.line("/exit")
        t.wait_for_end()
    with at_terminal(world) as t:
        t.wait_for("· offline ·", PROMPT)
        t.line("/exit")
        t.wait_for_end()

    assert QUESTION not in t.text
    assert json.loads((world.home / "settings.json").read_text("utf-8")) == {"model": "offline"}


def test_a_pasted_key_is_used_and_never_shown_nor_kept_unasked(world: World) -> None:
    with run_in_thread() as sim:
        world.variables["ANTHROPIC_BASE_URL"] = sim.url
        with at_terminal(world) as t:
            pick(t, "paste a key")
            t.wait_for("Paste the key")
            t.line("no key at all")
            t.wait_for("neither a key for Claude")
            pick(t, "paste a key")
            t.wait_for("Paste the key")
            t.line(KEY)
            t.wait_for("Keep the key in credentials.json (only you can read it)")
            t.press(f"{UP}{ENTER}")  # what was typed before does not come back
            t.wait_for("claude-sonnet-5-5", PROMPT)
            t.ask("hello", "hello")
            t.line("/exit")
            t.wait_for_end()

    assert KEY not in t.raw
    kept = [path for path in world.top.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert kept == []


def test_a_kept_key_lies_in_a_private_file_and_answers_from_then_on(world: World, here: Here) -> None:
    with run_in_thread() as sim:
        world.variables["ANTHROPIC_BASE_URL"] = sim.url
        with at_terminal(world) as t:
            pick(t, "paste a key")
            t.wait_for("Paste the key")
            t.line(KEY)
            t.wait_for("Keep the key")
            t.line("y")
            t.wait_for("claude-sonnet-5-5", PROMPT)
            t.line("/exit")
            t.wait_for_end()
        ran = here("-p", "hello", "--json")

    file = world.home / "credentials.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert json.loads(file.read_text("utf-8")) == {"ANTHROPIC_API_KEY": KEY}
    assert ran.json["result"].endswith("hello")
    doctor = here("doctor").out
    assert f"ANTHROPIC_API_KEY is kept in {file}" in doctor
    assert KEY not in t.raw + ran.out + ran.err + doctor


def test_a_file_that_is_no_model_is_named_and_the_question_comes_again(world: World) -> None:
    world.write("broken.gguf", "not a model")
    with at_terminal(world) as t:
        pick(t, "broken.gguf")
        t.wait_for("is not a GGUF file")
        pick(t, "name a GGUF file")
        t.wait_for("Path of the GGUF file:")
        t.line("nowhere.gguf")
        t.wait_for("there is no file", "nowhere.gguf", QUESTION)
        t.press(ESCAPE)
        t.wait_for("· offline ·", PROMPT)
        t.line("/exit")
        assert t.wait_for_end() == 0


def test_the_question_fits_a_narrow_terminal_and_ctrl_c_means_offline(world: World) -> None:
    with at_terminal(world, columns=40) as t:
        t.wait_for(QUESTION)
        t.press(DOWN)
        t.press(CTRL_C)
        t.wait_for(PROMPT)
        t.line("/exit")
        assert t.wait_for_end() == 0


@pytest.mark.parametrize("words", [("-p", "hello"), ("--model", "offline", "-p", "hello")])
def test_without_a_terminal_nothing_is_asked(world: World, words: tuple[str, ...]) -> None:
    ran = world.run(*words)

    assert ran.code == 0
    assert QUESTION not in ran.out + ran.err
    assert "offline engine" in ran.out


# --- what is found --------------------------------------------------------------------------------------


def test_a_server_on_loopback_is_offered_kept_and_answers(
    world: World, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.variables["OPENAI_API_KEY"] = "any"  # the simulator wants one; servers of this kind do not
    context = CommandContext(
        Environment.read(world.env),
        world.project,
        find_places(world.project, world.home),
        TrustedFolders(world.home),
        trusted=False,
    )

    async def choose(keys: PipeInput) -> ModelChoice | None:
        offer = ModelOffer(PromptSession(input=keys, output=DummyOutput()), context)
        menu, choices = await offer.make_menu()
        assert f"on port {port}" in menu.rows[0].beside
        return await offer.take(menu.rows[0].line, choices)

    with run_in_thread() as sim, create_pipe_input() as keys:
        port = int(sim.url.rpartition(":")[2])
        monkeypatch.setattr(model_offer, "PORTS", {port: "of this test"})
        keys.send_text("y\r")
        choice = anyio.run(choose, keys)
        ran = here("-p", "hello", "--json")

    assert choice is not None
    assert choice.variables == {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1"}
    kept = json.loads((world.home / "settings.json").read_text("utf-8"))
    assert kept == {"model": choice.model, "openaiBaseUrl": f"http://127.0.0.1:{port}/v1"}
    assert ran.json["result"].endswith("hello"), "the server answers from then on"


@pytest.mark.parametrize(
    ("answer", "status", "models"),
    [
        (b'{"data": [{"id": "qwen3:8b"}, {"id": "nomic-embed-text"}, {"id": "a b"}]}', 200, ("qwen3:8b",)),
        (b'{"data": [{"id": "\\u001b[31mred"}]}', 200, ()),
        (b'{"data": [{"id": "x"}]}', 404, ()),
        (b"<html>a page</html>", 200, ()),
        (b'{"data": "none"}', 200, ()),
        (b"\xff\xfe", 200, ()),
    ],
)
def test_a_server_of_another_kind_is_no_offer(answer: bytes, status: int, models: tuple[str, ...]) -> None:
    with serve(answer, status) as port:
        assert list_served_models(port) == models


def test_a_closed_port_is_no_offer() -> None:
    with serve(b"") as port:
        pass
    assert list_served_models(port) == ()


def test_files_are_found_in_the_usual_folders_the_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("project/old.gguf", "models/deep/er/new.gguf", "models/mmproj-x.gguf", "project/below/x.gguf")
    for number, name in enumerate(names):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"GGUF")
        os.utime(path, (number, number))

    found = find_model_files(tmp_path, tmp_path / "project")
    monkeypatch.setattr(model_offer, "MOST_ENTRIES", 2)
    hurried = find_model_files(tmp_path, tmp_path / "project")

    assert [path.name for path in found] == ["new.gguf", "old.gguf"]
    assert hurried == []


# --- the file of keys -----------------------------------------------------------------------------------


def test_a_variable_counts_before_a_kept_key(tmp_path: Path) -> None:
    keep_key(tmp_path / "home", "ANTHROPIC_API_KEY", "kept")
    keep_key(tmp_path / "home", "OPENAI_API_KEY", "also-kept")
    variables = {
        "HOME": str(tmp_path),
        "SEVENFOLD_HOME": str(tmp_path / "home"),
        "ANTHROPIC_API_KEY": "said",
    }

    read = Environment.read(variables)

    assert (read.anthropic_key, read.openai_key) == ("said", "also-kept")
    assert "kept" not in repr(read)
    assert "also-kept" not in read.tool_environment().values()


@pytest.mark.parametrize("text", ["{", '{"ANTHROPIC_API_KEY": ["sk-secret"]}', "[]"])
def test_a_damaged_file_of_keys_is_named_without_what_it_holds(tmp_path: Path, text: str) -> None:
    file = tmp_path / "credentials.json"
    file.write_text(text, "utf-8")
    file.chmod(0o600)

    with pytest.raises(SettingsError, match=r"credentials\.json") as error:
        read_kept_keys(tmp_path)

    assert "sk-secret" not in str(error.value)


def test_a_file_of_keys_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = keep_key(tmp_path, "ANTHROPIC_API_KEY", KEY)
    file.chmod(0o644)

    with pytest.raises(SettingsError, match=r"others can read it \(644\); run: chmod 600"):
        read_kept_keys(tmp_path)
