"""Rules that anybody may write, also a folder nobody trusts: none takes for ever to answer."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sevenfold.core.errors import SettingsError
from sevenfold.storage.walk import translate_glob
from sevenfold.tools import command_rules
from sevenfold.tools.permissions import PermissionRule

DECIDING = """
import sys
from pathlib import Path
from sevenfold.core.errors import SettingsError
from sevenfold.core.messages import ToolUse
from sevenfold.testing import FakeClock
from sevenfold.tools.permissions import Permissions
from sevenfold.tools.permission_settings import PermissionRules
from sevenfold.tools.workspace import Workspace

folder, rule, tool, what = sys.argv[1:]
place = Workspace(Path(folder), Path(folder), {}, Path(folder) / "outputs", FakeClock())
use = ToolUse("u", tool, {"command" if tool == "Bash" else "file_path": what})
try:
    print(Permissions(PermissionRules(deny=(rule,))).decide(use, place).behaviour)
except SettingsError:
    print("refused")
"""
LONG = "a" * 60
DEEP = "a/" * 60


def decided(folder: Path, rule: str, tool: str, what: str) -> str:
    """In a process of its own, so that what takes for ever is ended."""
    done = subprocess.run(
        [sys.executable, "-c", DECIDING, str(folder), rule, tool, what],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=20,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("rule", "tool", "what", "expected"),
    [
        ("Read(" + "*a" * 14 + "*b)", "Read", LONG + ".py", "allow"),
        ("Read(" + "*a" * 14 + "*b)", "Read", LONG + "b", "deny"),
        ("Read(" + "*[ab]" * 14 + "*c)", "Read", LONG + ".py", "allow"),
        ("Read(" + "*?" * 14 + "*c)", "Read", LONG + ".py", "allow"),
        ("Read(src/" + "*a" * 14 + "*b/x)", "Read", f"src/{LONG}/x", "allow"),
        ("Read(" + "**/a/" * 14 + "b)", "Read", DEEP + "c", "refused"),
        ("Read(" + "**a" * 14 + "**b)", "Read", LONG + ".py", "refused"),
        ("Read(" + "*a**" * 10 + "b)", "Read", LONG + ".py", "refused"),
        ("Read(" + "**/a" * 4 + "**a" * 10 + "b)", "Read", LONG + ".py", "refused"),
        ("Read(" + "{*a,*a}" * 14 + "b)", "Read", LONG + ".py", "refused"),
        ("Read(" + "*a" * 14 + "{b,c})", "Read", LONG + ".py", "refused"),
        ("Bash(echo " + "*a" * 14 + "*b)", "Bash", f"echo {LONG}", "allow"),
        ("Bash(echo " + "*a" * 14 + "*b)", "Bash", f"echo {LONG}b", "deny"),
        ("Bash(echo " + "*a" * 14 + "*b *)", "Bash", f"echo {LONG}b x", "deny"),
    ],
)
def test_a_rule_made_to_take_for_ever_answers_or_is_refused(
    tmp_path: Path, rule: str, tool: str, what: str, expected: str
) -> None:
    assert decided(tmp_path, rule, tool, what) == expected


@pytest.mark.parametrize(
    "rule", ["Read(" + "{a,b}" * 5 + ")", "Edit(" + "**/" * 2 + "a/**/" * 4 + ")", "Read({a}****/*/*/*/*)"]
)
def test_a_rule_with_too_many_patterns_says_how_to_write_it(rule: str) -> None:
    with pytest.raises(SettingsError, match="too many patterns; write several rules"):
        PermissionRule.parse(rule)


@pytest.mark.parametrize(
    "rule", ["Read(**/src/**/*.py)", "Read({a,b}/{c,d}/*.py)", "Edit(*a*b*c*d*e*f)", "Read(**/.env*)"]
)
def test_rules_that_people_write_are_taken(rule: str) -> None:
    assert PermissionRule.parse(rule).text == rule


@given(st.text("ab*?", max_size=12), st.text("ab", max_size=12))
def test_the_quick_way_finds_what_the_plain_meaning_of_a_pattern_says(glob: str, name: str) -> None:
    found = re.fullmatch(translate_glob(glob), name) is not None

    assert found == fnmatch.fnmatchcase(name, glob)


@given(st.text("ab*", min_size=1, max_size=10), st.text("ab", min_size=1, max_size=10))
def test_a_command_rule_too_finds_what_its_stars_say(about: str, word: str) -> None:
    found = command_rules.can_contain(f"echo x{about}", f"echo x{word}")

    assert found >= fnmatch.fnmatchcase(word, about)
