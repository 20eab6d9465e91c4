"""The docs cannot lie: what they link to is there, what they tell to type exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from sevenfold.core import events
from sevenfold.core.events import Event

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md")])
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
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
