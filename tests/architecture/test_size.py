"""The package stays as small as a reader can take in.

A limit is changed by changing its number in a commit that says why. There are no exception lists.
"""

from __future__ import annotations

import tomllib

import pytest
from architecture.source import PACKAGE, ROOT, format_offenders, read_package

pytestmark = pytest.mark.xdist_group("source")  # one worker reads the package once
MODULE_LINES = 800
TURN_LINES = 200
FUNCTION_LINES = 60
MODULES_IN_FOLDER = 16
STRATA = 12
MODULES = 366
# Two of thirty entries are kept free for the ways in to come: adapters, dashboard.
TOP_LEVEL_ENTRIES = 30 - 2
# This number only falls, or is raised in a commit that says for which capability: policies, side work the
# cheaper way, and a replay that measures what runs took 2,500 lines; a wall of provenance, undo and redo by
# author, our own rules for secrets, recall without waiting and extraction that survives took 4,500;
# the sandbox, trust by content and the habits of a chat 2,600; questions that hide nothing 900; settings
# of Claude Code, the offer of models 900; threads, Responses and structured output 2,400; the proxy 2,300;
# MCP 2,900; the plugin, hooks and setup 1,900; fleets 1,400; the history in SQLite gave 900 back;
# extraction by workers, effect once, mail between machines and a limit for all workers 650; statements
# that loosen a check, repairs that are told, and words said with memory off 120; a word table that is read
# by rows, files read without YAML, provenance of what other clients write 150; extraction that weighs what
# lasts 100; servers without a handshake, and a receipt that says what would not have fit 60;
# a machine that joins a fleet from the newest texts and fetches what was before when asked 80, also after a
# long absence 70; purges that leave nothing on other machines and with workers, changes that keep their
# author and time there, and what is held where 105; a fleet that is left without its database, and refusals
# that say why 35; replay and clearing that look at less 40; statements weighed by their words 16;
# recorded clearings carried out in a replay 5; writes that pass whole or not at all, where asked 5;
# recall and dreams in the report of a replay 30; a replay that works out no view of a recording and does
# less for each request 95; plain statements in French and Spanish 7; dates that go on ("Friday week") 12;
# quantities that disagree 25; passwords named in seven more languages 12; more lead-ins of pasted texts 3;
# vectors that can be waited for before they are begun 2; notes by rule that read what is new alone 34;
# paths that come back with the names 14; memory that stays in a loop that is not ours 3;
# what our own files mark, carried out and charged in a replay 150; copies, forks, windows, agents and runs
# without a person replayed as they were 190; what the user said last stands last, whatever stands for the
# rest 60; what a first picture and a forgetful model do to the cache 55; notes that stand in for bound
# thinking 25; side work that never ends a turn and is never lost 65; local models that answer at once 35.
PACKAGE_LINES = 105_894


def test_turn_is_read_in_one_sitting() -> None:
    turn = next(module for module in read_package() if module.path == PACKAGE / "turn.py")

    assert turn.lines <= TURN_LINES


def test_modules_are_short() -> None:
    long = [f"{m.locate()} {m.lines} lines" for m in read_package() if m.lines > MODULE_LINES]

    assert not long, format_offenders(long)


def test_functions_are_short() -> None:
    sizes = [
        (module.locate(function.lineno), function.name, (function.end_lineno or 0) - function.lineno + 1)
        for module in read_package()
        for function in module.functions
    ]
    long = [f"{place} {name} {lines} lines" for place, name, lines in sizes if lines > FUNCTION_LINES]

    assert not long, format_offenders(long)


def test_folders_hold_few_modules() -> None:
    folders: dict[str, int] = {}
    for module in read_package():
        if module.path.stem != "__init__":
            folder = str(module.path.parent.relative_to(ROOT))
            folders[folder] = folders.get(folder, 0) + 1
    full = [f"{folder} {count} modules" for folder, count in folders.items() if count > MODULES_IN_FOLDER]

    assert not full, format_offenders(full)


def test_the_top_level_is_a_short_list() -> None:
    entries = sorted(path.name for path in PACKAGE.iterdir() if path.name != "__pycache__")

    assert len(entries) <= TOP_LEVEL_ENTRIES, format_offenders(entries)


def test_the_import_contract_has_few_strata() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    strata = next(c["layers"] for c in settings["contracts"] if c.get("containers") == ["sevenfold"])

    assert len(strata) <= STRATA, format_offenders(strata)


def test_modules_are_few() -> None:
    modules = [module for module in read_package() if module.path.name != "__init__.py"]

    assert len(modules) <= MODULES


def test_the_package_does_not_grow() -> None:
    assert sum(module.lines for module in read_package()) <= PACKAGE_LINES
