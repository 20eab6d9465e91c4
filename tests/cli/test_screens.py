"""The pictures in the docs: each is drawn by the script, and the script still finds what it draws."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCREENS = ROOT / "docs" / "screens"


def run_script(*words: str) -> str:
    ran = subprocess.run(
        [sys.executable, str(SCREENS / "draw_screens.py"), *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout


def test_every_picture_is_drawn_by_the_script_and_used_by_a_page() -> None:
    there = {path.stem for path in SCREENS.glob("*.svg")}
    pages = "\n".join(path.read_text("utf-8") for path in (ROOT / "docs").glob("**/*.md"))

    assert there == set(re.findall(r"screens/(\w+)\.svg", pages))
    [listed] = re.findall(r"of ([\w, ]+);", " ".join(run_script("--help").split()))
    assert there == set(listed.split(", "))


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_picture_is_drawn_from_a_real_terminal(tmp_path: Path) -> None:
    run_script("diff", "--to", str(tmp_path), "--columns", "80")

    picture = (tmp_path / "diff.svg").read_text("utf-8").replace("&#160;", " ")
    assert "Change shop.py: 2 lines added, 1 line removed" in picture
    assert "Write it?" in picture
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", ""), (
        "nothing is loaded from elsewhere"
    )
