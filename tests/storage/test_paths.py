"""Which paths are accepted, and what counts as inside."""

from __future__ import annotations

from pathlib import Path

import pytest

from sevenfold.core.errors import Refused, SettingsError
from sevenfold.storage.files import check_folder_setting, resolve_inside

ME = Path("/home/me")


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "relative/folder",
        "./x",
        "../x",
        "/",
        "/a",
        "//server/share",
        "\\\\server\\share",
        "C:\\",
        "C:/",
        "c:",
        "/a\0b",
        "~",
        "~/",
        "~/.",
        "~/..",
        "~/x/..",
        "~/../..",
        "~someone/x",
        "/x/../y/..",
    ],
)
def test_a_place_that_could_swallow_too_much_is_refused_by_name(bad: str) -> None:
    with pytest.raises(SettingsError, match=r"^memoryDirectory cannot be .*; give the absolute path"):
        check_folder_setting(bad, "memoryDirectory", ME)


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/srv/memory", "/srv/memory"),
        ("/srv/x/../memory/", "/srv/memory"),
        ("~/memory", "/home/me/memory"),
        ("~/../shared", "/home/shared"),
        ("/srv/cafe\u0301", "/srv/caf\u00e9"),
    ],
)
def test_a_folder_of_its_own_is_accepted_and_normalised(given: str, path: str) -> None:
    assert check_folder_setting(given, "memoryDirectory", ME) == Path(path)


def test_what_is_inside_comes_back_as_its_real_path(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    (root / "sub").mkdir(parents=True)
    (root / "alias").symlink_to(root / "sub")
    assert resolve_inside(root / "new.md", root) == root / "new.md"
    assert resolve_inside(Path("sub/new.md"), root) == root / "sub/new.md"
    assert resolve_inside(root / "alias/new.md", root) == root / "sub/new.md"
    assert resolve_inside(root, root) == root


def test_a_root_reached_through_a_link_is_still_the_root(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert resolve_inside(tmp_path / "link/x.md", tmp_path / "link") == tmp_path / "real/x.md"


@pytest.mark.parametrize(
    "path", ["out/x.md", "../x.md", "sub/../../x.md", "dangling", "dangling/x.md", "loop", "a\0b"]
)
def test_what_leads_or_may_lead_outside_is_refused(tmp_path: Path, path: str) -> None:
    root = tmp_path / "memory"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "keys").mkdir()
    (root / "out").symlink_to(tmp_path / "keys")
    (root / "dangling").symlink_to(tmp_path / "later")
    (root / "loop").symlink_to(root / "loop")
    with pytest.raises(Refused, match="refused"):
        resolve_inside(Path(path), root)
    if "\0" not in path:
        with pytest.raises(Refused, match="refused"):
            resolve_inside(root / path, root)


def test_a_neighbour_with_the_same_beginning_is_not_inside(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory-evil").mkdir()
    with pytest.raises(Refused, match="not inside"):
        resolve_inside(tmp_path / "memory-evil/x.md", tmp_path / "memory")
