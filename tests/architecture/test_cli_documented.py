"""The page about the commands is what the commands say about themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from sevenfold.cli.chat.slash import COMMANDS
from sevenfold.cli.main import app, write_cli_reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
SHARED = {"--json", "--home", "--project", "--quiet", "--no-color"}


def commands(group: Any, path: str = "sevenfold") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


ALL = dict(commands(typer.main.get_command(app)))


def test_the_page_is_current() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page == write_cli_reference(), (
        "write it again: python -c 'from sevenfold.cli.main import write_cli_reference as r; "
        f'open("{PAGE.name}", "w").write(r())\''
    )


@pytest.mark.parametrize("path", ALL)
def test_every_command_and_every_option_is_on_the_page(path: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    heading = f"\n## {path}\n"
    assert heading in page
    section = page.partition(heading)[2].partition("\n## ")[0]
    own = [name for p in ALL[path].params for name in p.opts if name.startswith("--")]

    missing = [name for name in own if name not in SHARED and name not in section]

    assert missing == []
    assert all(p.help for p in ALL[path].params), "an option says nothing about itself"


@pytest.mark.parametrize("path", ALL)
def test_every_command_has_the_options_that_all_have(path: str) -> None:
    assert {name for p in ALL[path].params for name in p.opts} >= SHARED | {"-q"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_slash_command_is_on_the_page(name: str) -> None:
    assert f"| `{name}" in PAGE.read_text(encoding="utf-8")
