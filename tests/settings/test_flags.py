"""The switches: the provider's word, else the settings, else the defaults; and then they stay."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import pytest
from openfeature import api
from openfeature.evaluation_context import EvaluationContext
from openfeature.flag_evaluation import FlagResolutionDetails
from openfeature.provider.in_memory_provider import InMemoryFlag, InMemoryProvider

from sevenfold.core.events import Event, Failed
from sevenfold.settings import Switches
from sevenfold.settings.layers import DOMAIN, Flags

OFF = {"micro_time", "pre_cold", "precompute", "server_compact", "snip", "collapse", "threads"}
ON = {
    "tool_results",
    "aggregate_budget",
    "micro_cost",
    "micro_cache_edit",
    "micro_api",
    "notes",
    "payout",
    "compact",
    "reactive",
    "recall",
    "extraction",
    "dream",
    "team",
    "agent_summaries",
}


@pytest.fixture(autouse=True)
def no_provider_left_behind() -> Iterator[None]:
    yield
    api.clear_providers()


def provide(**values: Any) -> None:
    flags = {name: InMemoryFlag("it", {"it": value}) for name, value in values.items()}
    api.set_provider_and_wait(InMemoryProvider(flags), DOMAIN)


def test_the_defaults_are_the_ones_in_the_docs() -> None:
    flags = Flags()

    assert {name for name in flags.__struct_fields__ if getattr(flags, name)} == ON
    assert set(flags.__struct_fields__) == ON | OFF


def test_without_a_provider_the_settings_hold() -> None:
    events: list[Event] = []

    flags = Flags.latch(Switches(dream=False, snip=True), emit=events.append)

    assert flags == Flags(dream=False, snip=True)
    assert events == []


def test_a_mapping_of_names_will_do() -> None:
    assert Flags.latch({"dream": False}) == Flags(dream=False)


def test_a_provider_has_the_last_word_on_the_flags_it_knows() -> None:
    provide(dream=True, notes=False)
    events: list[Event] = []

    flags = Flags.latch(Switches(dream=False, team=False), emit=events.append)

    assert flags == Flags(dream=True, notes=False, team=False)
    assert events == []


def test_what_was_latched_stays() -> None:
    provide(notes=False)
    flags = Flags.latch()

    provide(notes=True)

    assert (flags.notes, Flags.latch().notes) == (False, True)


def test_a_client_can_be_handed_in() -> None:
    api.set_provider_and_wait(InMemoryProvider({"snip": InMemoryFlag("x", {"x": True})}), "other")

    assert Flags.latch(client=api.get_client("other")).snip


class Broken(InMemoryProvider):
    def __init__(self) -> None:
        super().__init__({})

    def resolve_boolean_details(
        self, flag_key: str, default_value: bool, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[bool]:
        return _fail(flag_key)


def _fail(key: str) -> NoReturn:
    raise ConnectionError(f"no route to the server of {key}")


def test_a_provider_that_breaks_changes_nothing_and_is_reported() -> None:
    api.set_provider_and_wait(Broken(), DOMAIN)
    events: list[Event] = []

    flags = Flags.latch(Switches(dream=False), emit=events.append)

    assert flags == Flags(dream=False)
    (event,) = events
    assert isinstance(event, Failed)
    assert "no route to the server" in event.cause
    assert all(name in event.cause for name in ON | OFF)


def test_an_answer_that_is_no_truth_value_is_not_taken() -> None:
    provide(notes="perhaps")
    events: list[Event] = []

    flags = Flags.latch(emit=events.append)

    assert flags.notes is True
    assert [type(event) for event in events] == [Failed]


def test_without_a_provider_openfeature_is_not_even_imported() -> None:
    code = (
        "import sys; from sevenfold.settings.layers import Flags; Flags.latch(); "
        "print('openfeature' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


def test_a_mapping_may_name_what_we_do_not_know() -> None:
    flags: Mapping[str, bool] = {"flag_of_tomorrow": True}

    assert Flags.latch(flags) == Flags()
