"""`sevenfold setup`: shown first, written with --yes, taken back byte for byte."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from cli.conftest import Here
from cli.world import World

CLIENTS = ("codex", "gemini", "opencode")
CONFIG = 'model = "gpt-5.5"  # mine\n\n[mcp_servers.other]\ncommand = "other"'
ENABLED = '{"enabledPlugins":{"sevenfold@sevenfold":true}}'
HOOKS = '{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"mine"}]}]},   "x":1}'


def read_tree(folder: Path) -> dict[str, bytes | None]:
    """Every file with its bytes; None for a folder."""
    return {
        path.relative_to(folder).as_posix(): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def codex(world: World) -> Path:
    """The folder of Codex with settings of the user."""
    folder = world.user / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(CONFIG, encoding="utf-8")
    (folder / "hooks.json").write_text(HOOKS, encoding="utf-8")
    return folder


@pytest.mark.parametrize("client", CLIENTS)
def test_without_yes_nothing_is_written(here: Here, world: World, client: str) -> None:
    ran = here("setup", client)

    assert ran.code == 0
    assert "would create" in ran.out
    assert f"'sevenfold setup {client} --yes' does it" in ran.err
    assert read_tree(world.user) == {}


@pytest.mark.parametrize("client", CLIENTS)
def test_remove_leaves_nothing_where_nothing_was(here: Here, world: World, client: str) -> None:
    assert here("setup", client, "--yes").code == 0
    assert read_tree(world.user)
    assert "is set up already" in here("setup", client).out

    assert here("setup", client, "--remove", "--yes").code == 0

    assert read_tree(world.user) == {}
    assert "is not set up" in here("setup", client, "--remove").out


def test_remove_gives_back_the_bytes(here: Here, codex: Path, world: World) -> None:
    before = read_tree(codex)
    here("setup", "codex", "--yes")

    servers = tomllib.loads((codex / "config.toml").read_text(encoding="utf-8"))["mcp_servers"]
    assert servers["other"] == {"command": "other"}
    assert servers["sevenfold"]["args"] == ["mcp", "--home", str(world.home)]
    hooks = json.loads((codex / "hooks.json").read_text(encoding="utf-8"))["hooks"]
    assert hooks["Stop"][0]["hooks"][0]["command"] == "mine"
    command = hooks["UserPromptSubmit"][0]["hooks"][0]["command"]
    assert command.endswith(f"hook UserPromptSubmit --client codex --home {world.home}")

    here("setup", "codex", "--yes")  # twice is once
    assert "-" in here("setup", "codex", "--remove").out
    here("setup", "codex", "--remove", "--yes")
    assert read_tree(codex) == before


def test_remove_takes_only_ours_from_a_file_that_changed_since(here: Here, codex: Path) -> None:
    here("setup", "codex", "--yes")
    config, hooks = codex / "config.toml", codex / "hooks.json"
    config.write_text(config.read_text(encoding="utf-8") + "[tui]\ntheme = 'x'\n", encoding="utf-8")
    hooks.write_text(hooks.read_text(encoding="utf-8").replace('"x": 1', '"x": 2'), encoding="utf-8")

    here("setup", "codex", "--remove", "--yes")

    kept = tomllib.loads(config.read_text(encoding="utf-8"))
    assert kept == {**tomllib.loads(CONFIG), "tui": {"theme": "x"}}
    assert json.loads(hooks.read_text(encoding="utf-8")) == {**json.loads(HOOKS), "x": 2}


def test_remove_keeps_the_users_own_hook_in_a_group_of_ours(here: Here, world: World) -> None:
    here("setup", "codex", "--yes")
    path = world.user / ".codex" / "hooks.json"
    value = json.loads(path.read_text(encoding="utf-8"))
    own = {"type": "command", "command": "mine", "note": "runs beside sevenfold hook Stop --client codex"}
    value["hooks"]["Stop"][0]["hooks"].append(own)
    path.write_text(json.dumps(value), encoding="utf-8")

    here("setup", "codex", "--remove", "--yes")

    assert json.loads(path.read_text(encoding="utf-8")) == {"hooks": {"Stop": [{"hooks": [own]}]}}


def test_remove_does_not_bring_back_what_the_user_deleted_since(here: Here, codex: Path) -> None:
    here("setup", "codex", "--yes")
    config, hooks = codex / "config.toml", codex / "hooks.json"
    config.write_text(config.read_text(encoding="utf-8").removeprefix(CONFIG), encoding="utf-8")
    value = json.loads(hooks.read_text(encoding="utf-8"))
    del value["x"], value["hooks"]["Stop"][0]
    hooks.write_text(json.dumps(value), encoding="utf-8")

    here("setup", "codex", "--remove", "--yes")

    assert read_tree(codex) == {}


def test_remove_gives_back_a_file_that_ours_replaced_also_if_ours_was_edited(
    here: Here, world: World
) -> None:
    path = world.user / ".config" / "opencode" / "plugins" / "sevenfold.ts"
    path.parent.mkdir(parents=True)
    path.write_text("// mine\n", encoding="utf-8")
    here("setup", "opencode", "--yes")
    path.write_text(path.read_text(encoding="utf-8") + "// edited\n", encoding="utf-8")

    here("setup", "opencode", "--remove", "--yes")

    assert path.read_text(encoding="utf-8") == "// mine\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"x": 1e400}', "cannot be written back"),
        ('{"x": NaN}', "cannot be written back"),
        ('{"x": "\\ud83d"}', "cannot be written back"),
        ('{"x": 1, "y": {"z": 1, "z": 2}}', "the key 'z' is there twice"),
    ],
)
def test_json_that_would_be_damaged_is_left_as_it_is(
    here: Here, world: World, content: str, said: str
) -> None:
    path = world.user / ".codex" / "hooks.json"
    path.parent.mkdir()
    path.write_text(content, encoding="utf-8")

    for words in ((), ("--yes",)):
        ran = here("setup", "codex", *words)
        assert ran.code == 2
        assert said in ran.err
        assert "nothing was changed" in ran.err

    assert read_tree(world.user / ".codex") == {"hooks.json": content.encode()}


@pytest.mark.parametrize(
    ("client", "name", "content", "said"),
    [
        ("codex", ".codex/config.toml", "model = ", "is not valid TOML"),
        ("codex", ".codex/hooks.json", "{", "is not valid JSON"),
        ("codex", ".codex/hooks.json", '{"hooks": []}', "'hooks' is not an object"),
        ("codex", ".codex/hooks.json", '{"hooks": {"Stop": {}}}', "the hooks of Stop are no list"),
        ("codex", ".codex/config.toml", "mcp_servers = {}", "has settings of its own"),
        ("opencode", ".config/opencode/opencode.json", "// comment\n{}", "is not valid JSON"),
        ("opencode", ".config/opencode/opencode.json", "[]", "is not a JSON object"),
        ("claude", ".claude/settings.json", '{"statusLine": ', "is not valid JSON"),
    ],
)
@pytest.mark.parametrize("words", [(), ("--yes",), ("--remove", "--yes")])
def test_a_file_that_is_not_valid_is_one_sentence_and_nothing_changes(
    here: Here, world: World, client: str, name: str, content: str, said: str, words: tuple[str, ...]
) -> None:
    path = world.user / name
    path.parent.mkdir(parents=True)
    path.write_text(content, encoding="utf-8")
    before = read_tree(world.user)

    ran = here("setup", client, *words)

    assert read_tree(world.user) == before
    assert not (world.home / "setup").exists()
    if "--remove" not in words or "not valid" in said:
        assert ran.code == 2
        assert said in ran.err
        assert ran.err.count("\n") == 1


def test_a_copy_of_what_was_there_is_kept(here: Here, world: World, codex: Path) -> None:
    here("setup", "codex", "--yes")

    copies = world.home / "setup" / "codex"
    assert (copies / "0-config.toml").read_text(encoding="utf-8") == CONFIG
    assert (copies / "1-hooks.json").read_text(encoding="utf-8") == HOOKS


def test_a_link_stays_a_link_and_a_mode_a_mode(here: Here, world: World, codex: Path) -> None:
    real = world.top / "dotfiles.toml"
    real.write_text(CONFIG, encoding="utf-8")
    real.chmod(0o640)
    (codex / "config.toml").unlink()
    (codex / "config.toml").symlink_to(real)

    here("setup", "codex", "--yes")
    assert (codex / "config.toml").is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    here("setup", "codex", "--remove", "--yes")
    assert real.read_text(encoding="utf-8") == CONFIG


def test_home_goes_into_the_commands(here: Here, world: World) -> None:
    files = here("setup", "codex", "--home", str(world.user / ".claude"), "--json").json["files"]

    assert f'"--home","{world.user}/.claude"' in files[0]["diff"].replace(" ", "")
    assert f"--client codex --home {world.user}/.claude" in files[1]["diff"]


def test_claude_code_has_to_be_there(here: Here, world: World) -> None:
    world.variables["PATH"] = "/nowhere"
    shown = here("setup", "claude")
    assert "would run: claude plugin install sevenfold@sevenfold" in shown.out

    ran = here("setup", "claude", "--yes")

    assert ran.code == 2
    assert "'claude' is not on your PATH" in ran.err
    assert read_tree(world.user) == {}
    assert not (world.home / "setup").exists()


@pytest.fixture
def claude(world: World) -> Path:
    """A `claude` that notes its arguments, enables the plugin as the real one does, and may fail."""
    program = world.top / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        'echo "$*" >> "$HOME/calls"\n'
        '[ -e "$HOME/fail" ] && [ "$2" = install ] && { echo "no network" >&2; exit 1; }\n'
        'mkdir -p "$HOME/.claude"\n'
        f'[ "$2" = install ] && echo \'{ENABLED}\' > "$HOME/.claude/settings.json"\n'
        '[ "$2" = uninstall ] && sed -i "s/.sevenfold@sevenfold.: *true//" "$HOME/.claude/settings.json"\n'
        "exit 0\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    world.variables["PATH"] = f"{program.parent}:/usr/bin:/bin"
    return world.user


def test_claude_code_installs_the_plugin_itself(here: Here, claude: Path, world: World) -> None:
    (claude / ".claude").mkdir()
    settings = claude / ".claude" / "settings.json"
    settings.write_text('{ "theme": "dark" }', encoding="utf-8")

    assert here("setup", "claude", "--yes").code == 0
    written = json.loads(settings.read_text(encoding="utf-8"))
    assert written["statusLine"]["command"] == "sevenfold statusline"
    assert here("setup", "claude", "--remove", "--yes").code == 0

    assert settings.read_text(encoding="utf-8") == '{ "theme": "dark" }'
    calls = (claude / "calls").read_text(encoding="utf-8").splitlines()
    assert [" ".join(call.split()[:3]) for call in calls] == [
        "plugin marketplace add",
        "plugin install sevenfold@sevenfold",
        "plugin uninstall sevenfold@sevenfold",
        "plugin marketplace remove",
    ]


def test_what_claude_code_takes_back_itself_stays_taken_back(here: Here, claude: Path) -> None:
    settings = claude / ".claude" / "settings.json"
    here("setup", "claude", "--yes")
    changed = {**json.loads(settings.read_text(encoding="utf-8")), "theme": "dark"}
    settings.write_text(json.dumps(changed), encoding="utf-8")

    assert here("setup", "claude", "--remove", "--yes").code == 0

    assert json.loads(settings.read_text(encoding="utf-8")) == {"enabledPlugins": {}, "theme": "dark"}


def test_a_step_that_fails_takes_all_back(here: Here, claude: Path) -> None:
    (claude / "fail").touch()
    (claude / ".claude").mkdir()
    settings = claude / ".claude" / "settings.json"
    settings.write_text('{ "theme": "dark" }', encoding="utf-8")

    ran = here("setup", "claude", "--yes")

    assert ran.code == 2
    assert "failed: no network" in ran.err
    assert settings.read_text(encoding="utf-8") == '{ "theme": "dark" }'
    assert (claude / "calls").read_text(encoding="utf-8").splitlines()[
        -1
    ] == "plugin marketplace remove sevenfold"


def test_a_status_line_of_the_user_stays(here: Here, claude: Path) -> None:
    (claude / ".claude").mkdir()
    (claude / ".claude" / "settings.json").write_text(
        '{"statusLine": {"command": "mine"}}', encoding="utf-8"
    )

    assert here("setup", "claude", "--json").json["files"] == []
    settings = claude / ".claude" / "settings.json"
    here("setup", "claude", "--yes")
    settings.write_text('{"statusLine": {"command": "mine"}, ' + ENABLED[1:], encoding="utf-8")
    checks = here("doctor", "--json").json["checks"]
    (found,) = [one["found"] for one in checks if one["name"] == "claude"]
    assert "has nothing of ours" not in found


def test_doctor_checks_what_setup_wrote(here: Here, world: World, codex: Path) -> None:
    def find_check(name: str) -> dict[str, str]:
        checks = here("doctor", "--json").json["checks"]
        return next(one for one in checks if one["name"] == name)

    assert find_check("agents")["found"] == "beside no other agent"
    here("setup", "codex", "--yes")
    assert find_check("codex")["state"] == "ok"
    (codex / "hooks.json").write_text("{}", encoding="utf-8")

    found = find_check("codex")

    assert found["state"] == "note"
    assert "hooks.json has nothing of ours any more" in found["found"]
    assert found["fix"] == "sevenfold setup codex --yes"
