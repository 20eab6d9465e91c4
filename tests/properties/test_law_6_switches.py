"""Law 6: with any switches off a session goes on, the other laws hold, and what is off does not happen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from properties.sessions import UNSHRUNK, Talk, entries_of, kind_of

from sevenfold.core.events import Cleared, Stored, Surfaced
from sevenfold.core.transcript import Edit, Entry, Mark
from sevenfold.layers.shared.boundary import parse_boundary
from sevenfold.settings.layers import LATCHED, Flags
from sevenfold.storage.places import find_places

NAMES = sorted(set(Flags.__struct_fields__) - set(LATCHED))
MEMORY = "---\nname: words\ndescription: the word in a question\ntype: project\n---\nIt is word.\n"
TRIGGERS = {"auto": "compact", "price": "compact", "refused": "reactive", "ahead": "precompute"}
RULES = {"cost": "micro_cost", "plain": "micro_time", "cache edit": "micro_cache_edit"}
ASKED = {"notes": "notes", "extract": "extraction", "dream": "dream", "keep-warm": "pre_cold"}


def happened(talk: Talk, entries: Sequence[Entry]) -> set[str]:
    """The switches whose mechanism has acted, by what can be seen from outside."""
    found = {ASKED[kind] for kind in map(kind_of, talk.requests) if kind in ASKED}
    found |= {RULES[event.by] for event in talk.of(Cleared)}
    found |= {"tool_results" for _ in talk.of(Stored)} | {"recall" for _ in talk.of(Surfaced)}
    for entry in entries:
        if isinstance(entry.what, Edit) and entry.by in ("Snip", "Collapse"):
            found.add(entry.by.lower())
        if isinstance(entry.what, Mark) and entry.what.name == "compacted":
            boundary = parse_boundary(entry.what.value)
            assert boundary is not None
            by = {"notes": "payout", "snip": "snip", "collapse": "collapse"}.get(boundary.by)
            found.add(by or TRIGGERS[boundary.trigger])
    return found


async def sitting(talk: Talk, flags: dict[str, bool]) -> set[str]:
    """Some turns with these switches; which mechanisms acted."""
    talk.requests.clear()
    talk.events.clear()
    known = len(entries_of(talk.path)) if talk.id else 0
    async with talk.session(flags=flags) as session:
        done = await talk.turns(session, 6)
    assert done == 6 or not (flags["compact"] and flags["reactive"])
    talk.check_laws()
    return happened(talk, entries_of(talk.path)[known:])


SWITCHES = st.fixed_dictionaries({name: st.booleans() for name in NAMES})


def check(seed: int, *sittings: dict[str, bool]) -> None:
    """Several sittings of one conversation, each with its own switches."""

    async def talked(folder: Path) -> None:
        talk = remembering(folder, seed)
        for flags in sittings:
            acted = await sitting(talk, flags)
            assert {name for name in acted if not flags[name]} == set()

    with TemporaryDirectory() as folder:
        anyio.run(talked, Path(folder))


def remembering(folder: Path, seed: int) -> Talk:
    talk = Talk(folder, seed)
    memory = find_places(talk.project, talk.home).project / "memory"
    memory.mkdir(parents=True)
    (memory / "words.md").write_text(MEMORY, encoding="utf-8")
    return talk


@settings(max_examples=8, phases=UNSHRUNK)
@given(st.integers(0, 10_000), SWITCHES, SWITCHES)
def test_what_is_off_does_not_happen_and_everything_else_goes_on(
    seed: int, first: dict[str, bool], second: dict[str, bool]
) -> None:
    check(seed, first, second)


@pytest.mark.soak
@settings(max_examples=150, phases=UNSHRUNK)
@given(st.integers(10_001, 10**9), SWITCHES, SWITCHES, SWITCHES)
def test_any_switches_in_any_sitting_for_long(
    seed: int, first: dict[str, bool], second: dict[str, bool], third: dict[str, bool]
) -> None:
    check(seed, first, second, third)


def test_with_everything_on_much_of_it_does_happen(tmp_path: Path) -> None:
    """Else the test above would show nothing."""
    on = {**dict.fromkeys(NAMES, True), "collapse": False, "snip": False, "micro_time": False}
    seen: set[str] = set()

    async def talked(seed: int) -> None:
        talk = remembering(tmp_path / str(seed), seed)
        for _ in range(2):
            seen.update(await sitting(talk, on))

    for seed in range(2):
        anyio.run(talked, seed)

    assert seen >= {"notes", "extraction", "recall", "tool_results"}
    assert seen & {"payout", "compact", "precompute", "reactive"}
