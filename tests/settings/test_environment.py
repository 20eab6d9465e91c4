"""What the environment says, and what tools get to see of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sevenfold.core.errors import SettingsError
from sevenfold.settings import Environment, Settings, explain_memory_off, find_configured_path
from sevenfold.settings.checks import describe_settings
from sevenfold.settings.reference import write_settings_reference
from sevenfold.settings.schema import make_settings

KEYS = {
    "ANTHROPIC_API_KEY": "sk-ant-secret",
    "ANTHROPIC_AUTH_TOKEN": "token-secret",
    "OPENAI_API_KEY": "sk-secret",
}


def test_an_empty_environment_says_nothing() -> None:
    environment = Environment.read({"HOME": "/home/ada"})

    assert environment == Environment(home=Path("/home/ada/.sevenfold"), variables={"HOME": "/home/ada"})


@pytest.mark.parametrize(
    ("given", "home"),
    [("/srv/seven", "/srv/seven"), ("~/seven", "/home/ada/seven"), ("", "/home/ada/.sevenfold")],
)
def test_the_home_is_where_the_variable_says(given: str, home: str) -> None:
    environment = Environment.read({"HOME": "/home/ada", "SEVENFOLD_HOME": given})

    assert environment.home == Path(home)


def test_a_relative_home_begins_where_we_are() -> None:
    assert Environment.read({"SEVENFOLD_HOME": "here"}).home == Path.cwd() / "here"


def test_every_variable_has_its_place() -> None:
    environment = Environment.read(
        {
            "HOME": "/home/ada",
            **KEYS,
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
            "OPENAI_BASE_URL": "http://127.0.0.1:2/v1",
            "SEVENFOLD_WINDOW": "32000",
            "SEVENFOLD_AUTOCOMPACT_PERCENT": "62.5",
            "SEVENFOLD_BLOCK_LIMIT": "30000",
            "SEVENFOLD_DISABLE_MEMORY": "0",
            "SEVENFOLD_BARE": "1",
            "SEVENFOLD_REMOTE": "true",
            "SEVENFOLD_REMOTE_MEMORY_DIR": "/remote",
            "SEVENFOLD_MEMORY_PATH": "/memory",
            "SEVENFOLD_MEMORY_GUIDELINES": "be kind",
            "NO_COLOR": "1",
            "OTEL_SDK_DISABLED": "true",
        }
    )

    e = environment
    assert (e.anthropic_key, e.anthropic_token, e.openai_key) == tuple(KEYS.values())
    assert (e.bare, e.remote, e.disable_memory, e.no_color) == (True, True, False, True)
    assert (e.remote_memory_dir, e.memory_path) == ("/remote", "/memory")
    settings = make_settings(e.as_settings())
    assert settings == Settings(
        anthropic_base_url="http://127.0.0.1:1",
        openai_base_url="http://127.0.0.1:2/v1",
        window=32_000,
        auto_compact_percent=62.5,
        block_limit=30_000,
        guidelines="be kind",
        telemetry=settings.telemetry,
    )
    assert not settings.telemetry.enabled


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SEVENFOLD_WINDOW", "big", 'a whole number of at least 1; got "big"'),
        ("SEVENFOLD_WINDOW", "0", "a whole number of at least 1"),
        ("SEVENFOLD_WINDOW", "٣", "a whole number of at least 1"),
        ("SEVENFOLD_AUTOCOMPACT_PERCENT", "nan", "a number above 0 and up to 100"),
        ("SEVENFOLD_AUTOCOMPACT_PERCENT", "101", "a number above 0 and up to 100"),
        ("SEVENFOLD_DISABLE_MEMORY", "maybe", "1 or 0"),
        ("ANTHROPIC_BASE_URL", "example.com", "begins with http:// or https://"),
        ("ANTHROPIC_API_KEY", "sk-ant\nsecret", "a key as it was issued"),
    ],
)
def test_a_bad_value_names_its_variable(name: str, value: str, said: str) -> None:
    with pytest.raises(SettingsError) as raised:
        Environment.read({"HOME": "/h", name: value})

    assert str(raised.value).startswith(f"{name} must be {said}") or said in str(raised.value)
    assert "secret" not in str(raised.value)


def test_keys_are_not_shown() -> None:
    environment = Environment.read({"HOME": "/h", **KEYS})

    from rich.pretty import pretty_repr

    for text in (repr(environment), str(environment), pretty_repr(environment)):
        assert "secret" not in text
        assert "anthropic_key='set'" in text


def test_tools_see_everything_but_our_keys() -> None:
    environment = Environment.read({"HOME": "/h", "PATH": "/bin", "PAGER": "less", **KEYS})

    seen = environment.tool_environment({"PAGER": "cat"})

    assert seen == {"HOME": "/h", "PATH": "/bin", "PAGER": "cat"}


def test_a_tool_gets_a_key_when_the_user_says_so() -> None:
    environment = Environment.read({"HOME": "/h", **KEYS})

    assert environment.tool_environment({"OPENAI_API_KEY": "x"})["OPENAI_API_KEY"] == "x"


@pytest.mark.parametrize(
    ("variables", "enabled", "off"),
    [
        ({}, True, None),
        ({}, False, "memoryEnabled is false in the settings"),
        ({"SEVENFOLD_DISABLE_MEMORY": "1"}, True, "SEVENFOLD_DISABLE_MEMORY is set"),
        ({"SEVENFOLD_DISABLE_MEMORY": "0", "SEVENFOLD_BARE": "1"}, False, None),
        ({"SEVENFOLD_BARE": "1"}, True, "this is a bare session"),
        ({"SEVENFOLD_REMOTE": "1"}, True, "SEVENFOLD_REMOTE is set and SEVENFOLD_REMOTE_MEMORY_DIR is not"),
        ({"SEVENFOLD_REMOTE": "1", "SEVENFOLD_REMOTE_MEMORY_DIR": "/r"}, True, None),
    ],
)
def test_the_off_switches_of_memory_in_their_order(
    variables: dict[str, str], enabled: bool, off: str | None
) -> None:
    environment = Environment.read({"HOME": "/h", **variables})

    assert explain_memory_off(environment, Settings(memory_enabled=enabled)) == off


def test_where_memory_lives_is_first_the_variable_then_the_setting() -> None:
    plain = Environment.read({"HOME": "/h"})
    told = Environment.read({"HOME": "/h", "SEVENFOLD_MEMORY_PATH": "/m"})
    settings = Settings(memory_directory="/s")

    found = [find_configured_path(e, s) for e in (plain, told) for s in (Settings(), settings)]

    assert found == [None, "/s", "/m", "/m"]


# --- the page about them --------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


def test_the_page_about_settings_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == write_settings_reference()


def test_every_setting_has_a_meaning_and_a_default_that_is_right() -> None:
    import json

    for key, words, default, meaning in describe_settings():
        assert words
        assert meaning.endswith(".")
        values: object = json.loads(default)
        for part in reversed(key.split(".")):
            values = {part: values}
        assert isinstance(values, dict)
        assert make_settings(values) == Settings()
