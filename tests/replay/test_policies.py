"""Policies are small files: ours, a user's own, and what is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from sevenfold.core.errors import Mistake, SettingsError
from sevenfold.replay.policies import (
    BUILT_IN,
    ELSEWHERE,
    LAYERS,
    ClearRule,
    Policy,
    exclude_layers,
    find_useless_exclusions,
    list_active_layers,
    load_policy,
)
from sevenfold.settings.layers import Switches
from sevenfold.settings.schema import Settings


def test_each_of_ours_has_its_name_and_says_what_it_does() -> None:
    for name in BUILT_IN:
        assert load_policy(name).name == name
        assert load_policy(name).description


def test_balanced_is_what_the_product_does_when_nothing_is_set() -> None:
    ours, product = load_policy("balanced"), Settings()

    assert ours.flags == product.flags
    assert ours.tool_results == product.tool_results
    assert ours.micro == product.micro
    assert ours.notes == product.notes
    assert ours.compaction == product.compaction
    assert ours.cache_ttl == product.cache_ttl
    assert ours.auto_compact_percent == product.auto_compact_percent


def test_what_a_file_leaves_out_is_as_the_product_has_it(tmp_path: Path) -> None:
    path = tmp_path / "empty.toml"
    path.write_text("", encoding="utf-8")

    assert replace(load_policy(str(path)), name="", description="") == replace(
        load_policy("balanced"), name="", description=""
    )


def test_the_others_differ_from_it_as_their_names_say() -> None:
    assert load_policy("clear-every-10").clear == ClearRule(every=10, keep=5)
    assert load_policy("summarise-at-80").auto_compact_percent == 80
    assert load_policy("specified").micro.policy == "plain"
    assert not any(
        load_policy(name).compaction.by_size for name in BUILT_IN if name not in ("balanced", "thrifty")
    )
    quiet = load_policy("append-only").flags
    assert {quiet.tool_results, quiet.micro_cost, quiet.micro_time, quiet.notes} == {False}


def test_a_file_of_ones_own_is_laid_over_what_the_product_does(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'cacheTtl = "1h"\nkeepWarm = 2\n[micro]\nkeepRecent = 9\n[flags]\nnotes = false\n', encoding="utf-8"
    )

    mine = load_policy(str(path))

    assert (mine.name, mine.cache_ttl, mine.keep_warm) == ("mine", "1h", 2)
    assert mine.micro == replace(Policy().micro, keep_recent=9)
    assert mine.flags == replace(Switches(), notes=False)


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("[micro]\n\nkeepRecnt = 3\n", 3, "micro.keepRecnt is not a key.*'keepRecent'"),
        ("[notes]\n[mirco]\n", 2, "mirco is not a key of a policy; did you mean 'micro'"),
        ("[micro]\nkeepRecent = 'x'\n", 2, "micro.keepRecent: expected int, got str"),
        ("# a\ncacheTtl = '9m'\n", 2, "cacheTtl: invalid enum value '9m'; it may be 1h, 5m, recorded"),
        ("[[micro]]\nkeepRecent = 1\n", 1, "micro: expected object, got array"),
        ("[clear]\nkeep = 5\n", 1, "clear: it never clears anything: say every or tokens"),
        ("[clear]\nevery = -1\n", 2, "clear.every: expected int >= 0"),
        ("[flags]\nmicro_cost = 1\n", 2, "flags.micro_cost: expected bool, got int"),
        ("a = \n", 1, "not valid TOML"),
    ],
)
def test_a_mistake_is_named_by_file_and_line(text: str, line: int, why: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(SettingsError, match=why) as caught:
        load_policy(str(path))
    assert str(caught.value).startswith(f"{path}:{line}: ")


def test_a_name_that_is_no_policy_gets_a_suggestion() -> None:
    with pytest.raises(Mistake, match="did you mean 'append-only'"):
        load_policy("apend-only")


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_can_be_left_out(layer: str) -> None:
    on = replace(load_policy("balanced"), keep_warm=2, clear=ClearRule(every=3))

    less = exclude_layers(on, [layer.replace("_", "-")])

    also = " and with it notes" if layer == "compaction" else ""
    assert less.name == f"balanced without {layer}{also}"
    assert not any(getattr(less.flags, flag) for flag in LAYERS[layer])
    assert (less.keep_warm == 0) is (layer == "keep_warm")
    assert (less.clear is None) is (layer == "micro")


def test_the_plain_rule_and_old_thinking_are_left_out_with_their_layer() -> None:
    assert exclude_layers(load_policy("specified"), ["micro"]).micro.policy == "cost"
    assert exclude_layers(load_policy("balanced"), ["micro"]).micro.thinking_replies == 0


def test_a_layer_that_drops_old_thinking_alone_is_on() -> None:
    off = exclude_layers(load_policy("balanced"), ["micro"])
    thinks = replace(off, micro=load_policy("balanced").micro)

    assert find_useless_exclusions(off, ["micro"]) == ["micro"]
    assert find_useless_exclusions(thinks, ["micro"]) == []


def test_without_compaction_the_recorded_ones_are_carried_out() -> None:
    assert load_policy("balanced").compacts
    assert not exclude_layers(load_policy("balanced"), ["compaction"]).compacts
    assert not exclude_layers(load_policy("balanced"), ["compact"]).compacts


def test_the_name_says_that_notes_go_with_compaction_where_there_were_any() -> None:
    names = [exclude_layers(load_policy(p), ["compaction"]).name for p in ("specified", "append-only")]

    assert names == ["specified without compaction and with it notes", "append-only without compaction"]
    both = exclude_layers(load_policy("balanced"), ["compaction", "notes"])
    assert both.name == "balanced without compaction, notes"


@pytest.mark.parametrize(
    ("name", "layer", "off"),
    [
        ("balanced", "keep_warm", True),
        ("balanced", "snip", True),
        ("balanced", "pre-cold", True),
        ("balanced", "precompute", True),
        ("balanced", "collapse", True),
        ("balanced", "micro_time", True),
        ("balanced", "payout", False),
        ("balanced", "micro", False),
        ("append-only", "extraction", True),
        ("append-only", "payout", True),
        ("append-only", "compaction", False),
        ("clear-every-10", "micro", False),
        ("clear-every-10", "micro_cost", True),
        ("specified", "micro", False),
        ("specified", "micro_time", True),  # its rule is a setting, which the flag does not turn
    ],
)
def test_what_is_off_in_a_policy_is_left_out_in_vain(name: str, layer: str, off: bool) -> None:
    assert bool(find_useless_exclusions(load_policy(name), [layer])) is off


def test_every_layer_and_flag_that_can_be_left_out_is_known_to_be_on_or_off() -> None:
    flags = set(Switches.__struct_fields__) - ELSEWHERE

    assert set(list_active_layers(Policy())) == {*flags, *LAYERS}


def test_a_single_flag_can_be_left_out_and_nothing_unknown() -> None:
    assert not exclude_layers(load_policy("balanced"), ["payout"]).flags.payout
    with pytest.raises(Mistake, match="did you mean 'micro'"):
        exclude_layers(load_policy("balanced"), ["mirco"])


@pytest.mark.parametrize("flag", sorted(ELSEWHERE))
def test_what_a_replay_does_not_carry_out_cannot_be_left_out(flag: str) -> None:
    assert flag in Switches.__struct_fields__
    with pytest.raises(Mistake, match=f"does not carry out '{flag}'.*what can be left out"):
        exclude_layers(load_policy("balanced"), [flag])


def test_without_anything_left_out_it_is_the_same() -> None:
    assert exclude_layers(load_policy("balanced"), []) == load_policy("balanced")
