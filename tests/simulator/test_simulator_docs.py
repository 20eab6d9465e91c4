"""The reference page cannot lag behind: what exists is on it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from sevenfold.simulator import LedgerRow, ScriptStep
from sevenfold.simulator.ledger import LedgerTotal, SharedPrefix, TokenCounts
from sevenfold.simulator.script import ErrorStep, ReplyStep, SlowReply, StepMatch, StreamPoint

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/simulator.md").read_text("utf-8")
SERVER = (ROOT / "src/sevenfold/simulator/server.py").read_text("utf-8")


@pytest.mark.parametrize("kind", [ScriptStep, ReplyStep, ErrorStep, SlowReply, StreamPoint, StepMatch])
def test_every_key_of_a_script_is_on_the_page(kind: type[msgspec.Struct]) -> None:
    for name in kind.__struct_fields__:
        assert f"`{name}`" in PAGE or f'"{name}"' in PAGE, name


@pytest.mark.parametrize("kind", [LedgerRow, SharedPrefix, TokenCounts, LedgerTotal])
def test_every_field_of_the_ledger_is_on_the_page(kind: type[msgspec.Struct]) -> None:
    for name in kind.__struct_fields__:
        assert f'"{name}"' in PAGE, name


def test_every_address_is_on_the_page() -> None:
    paths = re.findall(r'\("(?:GET|POST)", "(/[^"]*)"\)', SERVER)
    assert len(paths) >= 7
    for path in paths:
        assert path in PAGE, path
