"""The docs cannot lie: what they link to is there, what they tell to type exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest
from clients.environments import read_environments

from sevenfold.core import events
from sevenfold.core.events import Event
from sevenfold.settings.schema import Settings

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md")])
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
NO_DEFAULT = ("micro.needModel", "recall.model", "agents.reachable", "compaction.py", "compaction.breaker")
"""Settings without a value by default, and names that are no settings: a file, a mark."""
MAKE = re.compile(r"^\s*make ([a-z-]+)", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_links_to_is_there(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))

    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_tells_to_make_is_in_the_makefile(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(MAKE.findall(page.read_text(encoding="utf-8")))

    assert [t for t in targets if not re.search(rf"^{t}:", makefile, re.MULTILINE)] == []


def test_the_page_about_the_architecture_lists_what_is_there() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    house = ROOT / "src/sevenfold"
    entries = {path.name for path in house.iterdir() if not path.name.startswith(("__", "py.typed"))}
    listed = {name.rstrip("/") for name in re.findall(r"^\| `([a-z_]+(?:/|\.py))` \|", page, re.MULTILINE)}
    paths = re.findall(r"`([a-z_0-9]+/[a-z_0-9/]+\.py)`", page)

    assert listed == entries
    assert [path for path in paths if not (house / path).exists() and not (ROOT / path).exists()] == []


SETTING = re.compile(r"`([a-z][A-Za-z]*\.[a-z][A-Za-z]*)`")
MENTION = re.compile(r"([^()\n]{0,80})\(([^()\n]*`[a-z][A-Za-z]*\.[a-z][A-Za-z]*`[^()\n]*)\)")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?: %)?")


def read_number(text: str) -> float:
    value = float(text.removesuffix(" %").replace(",", ""))
    return value / 100 if text.endswith("%") else value


def find_default(key: str) -> object:
    """The default of a setting; None if there is no such setting."""
    value: object = msgspec.to_builtins(Settings(), enc_hook=str)
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def test_a_number_beside_a_setting_is_its_default() -> None:
    found, wrong = 0, []
    for page in sorted(ROOT.glob("docs/layers/*.md")):
        for before, inside in MENTION.findall(page.read_text(encoding="utf-8")):
            numbers = [read_number(one) for one in NUMBER.findall(f"{before} {inside}")]
            for key in SETTING.findall(inside):
                default = find_default(key)
                if isinstance(default, bool) or not isinstance(default, int | float) or not numbers:
                    continue
                found += 1
                if default not in numbers:
                    wrong.append(f"{page.name}: {key} is {default:,}, and beside it stands {numbers}")
    assert wrong == []
    assert found > 30


def test_every_setting_that_a_page_names_is_there() -> None:
    sections = set(msgspec.to_builtins(Settings(), enc_hook=str))
    wrong = [
        f"{page.name}: {key}"
        for page in sorted(ROOT.glob("docs/layers/*.md"))
        for key in SETTING.findall(page.read_text(encoding="utf-8"))
        if key.partition(".")[0] in sections and find_default(key) is None and key not in NO_DEFAULT
    ]
    assert wrong == []


def test_the_contributors_guide_can_be_read_in_one_sitting() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) <= 80


def test_every_event_stands_in_the_reference_with_its_fields() -> None:
    page = (ROOT / "docs/reference/library.md").read_text(encoding="utf-8")
    kinds = [k for k in vars(events).values() if isinstance(k, type) and issubclass(k, Event)]
    rows = {
        kind.__name__: ", ".join(f"`{field}`" for field in kind.__struct_fields__)
        for kind in kinds
        if kind is not Event
    }

    assert len(rows) > 15
    assert [n for n, fields in rows.items() if f"| `{n}` | {fields} |" not in page] == []


def test_every_dependency_has_a_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    reasons = (ROOT / "docs/decisions/dependencies.md").read_text(encoding="utf-8")
    names = [re.split(r"[<>=\[ ]", text)[0] for text in project["dependencies"]]
    names += project["optional-dependencies"]

    assert [name for name in names if name not in reasons] == []


def test_the_lock_names_hashes_and_no_index() -> None:
    lock = (ROOT / "requirements/dev.lock").read_text(encoding="utf-8")
    pins = [line for line in lock.splitlines() if re.match(r"[a-z0-9].*==", line)]

    assert "://" not in lock
    assert lock.count("--hash=sha256:") >= len(pins) > 30


def test_the_page_about_clients_names_the_versions_that_are_run() -> None:
    page = (ROOT / "docs/reference/clients.md").read_text(encoding="utf-8")
    clients = [client for client in read_environments().values() if client.name != "tools"]

    assert len(clients) == len(re.findall(r"^\| ", page, re.MULTILINE)) - 1
    assert [client.name for client in clients if f" {client.version}" not in page] == []
