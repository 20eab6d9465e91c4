"""How a line of words becomes a command, and how it ends."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest
from cli.conftest import Here
from cli.world import World

from sevenfold import __version__
from sevenfold.cli.main import GROUPS, arrange_words, is_json_requested
from sevenfold.cli.options import PermissionModeOption
from sevenfold.settings import PermissionSettings


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ([], ["chat"]),
        (["-p", "hi"], ["chat", "-p", "hi"]),
        (["--json", "-p", "hi"], ["chat", "--json", "-p", "hi"]),
        (["--continue"], ["chat", "--continue"]),
        (["doctor", "--json"], ["doctor", "--json"]),
        (["--json", "doctor"], ["doctor", "--json"]),
        (["--home", "sessions", "doctor"], ["doctor", "--home", "sessions"]),
        (["--home=x", "-q", "doctor"], ["doctor", "--home=x", "-q"]),
        (["sessions"], ["sessions", "list"]),
        (["sessions", "--json"], ["sessions", "list", "--json"]),
        (["--json", "sessions"], ["sessions", "list", "--json"]),
        (["-q", "sessions", "rm", "x"], ["sessions", "rm", "-q", "x"]),
        (["sessions", "--help"], ["sessions", "--help"]),
        (["memory"], ["memory", "list"]),
        (["-q", "memory", "show", "x"], ["memory", "show", "-q", "x"]),
        (["memory", "quarantine"], ["memory", "quarantine", "list"]),
        (["--json", "memory", "quarantine"], ["memory", "quarantine", "list", "--json"]),
        (
            ["memory", "--home", "x", "quarantine", "drop", "1"],
            ["memory", "quarantine", "drop", "--home", "x", "1"],
        ),
        (["memory", "quarantine", "--help"], ["memory", "quarantine", "--help"]),
        (["memory", "recall", "quarantine"], ["memory", "recall", "quarantine"]),
        (["--help"], ["--help"]),
        (["-q", "--version"], ["--version"]),
        (["hello"], ["hello"]),
    ],
)
def test_the_command_is_found_wherever_the_shared_options_stand(
    words: list[str], command: list[str]
) -> None:
    assert arrange_words(words) == command


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["chat", "--json"], True),
        (["--output-format", "json"], True),
        (["--output-format=stream-json"], True),
        (["--output-format", "text"], False),
        (["-p", "--", "--json"], False),
        (["doctor"], False),
    ],
)
def test_whether_errors_are_json_is_known_before_the_words_are(words: list[str], wanted: bool) -> None:
    assert is_json_requested(words) is wanted


def test_it_says_its_version(here: Here) -> None:
    assert here("--version").out == f"sevenfold {__version__}\n"


def test_help_names_every_command(here: Here) -> None:
    ran = here("--help")

    assert ran.code == 0
    for name in ("chat", "sessions", "memory", "context", "simulate", "trust", "doctor", "demo"):
        assert f"\n  {name} " in ran.out


def test_a_mistyped_command_is_wrong_usage_with_the_one_that_was_meant(here: Here) -> None:
    ran = here("sesions")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("sevenfold: No such command 'sesions'. Did you mean 'sessions'?")


def test_a_usage_error_is_json_where_json_was_asked_for(here: Here) -> None:
    ran = here("chat", "--json", "--max-steps", "none")

    assert ran.code == 2
    assert ran.json["error"] == "usage"
    assert "--max-steps" in ran.json["reason"]


@pytest.mark.parametrize(
    "words",
    [
        ("doctor",),
        ("sessions",),
        ("sessions", "show", "none"),
        ("sessions", "rm", "none"),
        ("context",),
        ("trust",),
        ("trust", "--revoke"),
        ("chat", "-p", "hi"),
        ("chat",),
        ("chat", "-p", "hi", "--model", "nonsense"),
        ("simulate", "--script", "none"),
    ],
    ids=" ".join,
)
def test_with_json_there_is_one_document_on_stdout_and_nothing_else(
    here: Here, words: tuple[str, ...]
) -> None:
    ran = here(*words, "--json")

    assert isinstance(ran.json, dict)
    assert ran.out.count("\n") == 1


def test_a_closed_pipe_is_no_reason_for_a_traceback(world: World) -> None:
    process = world.start("doctor")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read().decode()

    assert process.wait() in (0, 1)
    assert "Traceback" not in said
    process.stderr.close()


def test_the_home_can_be_named_on_the_command_line(here: Here, world: World) -> None:
    other = world.top / "elsewhere"
    here("chat", "-p", "hi", "--home", str(other))

    assert list(other.glob("projects/*/*.jsonl"))
    assert world.transcripts == []


def test_settings_are_read_from_the_home_on_the_command_line(here: Here, world: World) -> None:
    other = world.top / "elsewhere"
    other.mkdir()
    (other / "settings.json").write_text('{"model": "claude-sonnet-4-5"}', encoding="utf-8")

    ran = here("chat", "-p", "hi", "--home", str(other))

    assert ran.code == 2
    assert "claude-sonnet-4-5 needs a key" in ran.err


def test_the_modes_on_the_command_line_are_those_of_the_settings() -> None:
    for mode in PermissionModeOption:
        assert msgspec.convert({"mode": mode.value}, PermissionSettings).mode == mode


HEAVY = ("rich", "prompt_toolkit", "httpx", "anyio", "sevenfold.session", "pygments")


@pytest.mark.parametrize(
    ("words", "unneeded"),
    [(["--help"], HEAVY), (["--version"], HEAVY), (["-p", "hi"], ("rich", "prompt_toolkit", "httpx"))],
    ids=["help", "version", "a prompt"],
)
def test_only_what_is_needed_is_loaded(world: World, words: list[str], unneeded: tuple[str, ...]) -> None:
    code = (
        "import sys; from sevenfold.cli.main import main; code = main(sys.argv[2:]); "
        "loaded = set(sys.argv[1].split()) & set(sys.modules); "
        "sys.exit(f'loaded: {loaded}' if loaded else code)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, " ".join(unneeded), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=world.env,
        cwd=world.project,
        check=False,
    )

    assert (ran.returncode, ran.stderr.decode()) == (0, "")


@pytest.mark.parametrize("words", [("--version", "--json"), ("--json", "--version")])
def test_the_version_as_json_too(here: Here, words: tuple[str, ...]) -> None:
    ran = here(*words)

    assert (ran.code, ran.json) == (0, {"version": __version__})
    assert here("--version").out == f"sevenfold {__version__}\n"
    assert here("-q", "--version").code == 0


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_no_summary_of_a_command_is_cut(here: Here, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, _, commands = here(*group.split(), "--help").out.partition("Commands:\n")

    assert commands
    assert [line for line in commands.splitlines() if line.endswith("...")] == []
