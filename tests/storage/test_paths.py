"""Which paths are accepted as a folder of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from sevenfold.core.errors import SettingsError
from sevenfold.storage.files import check_folder_setting

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
