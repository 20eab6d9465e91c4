"""Which policies a replay was asked for, and what is to be said of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from sevenfold.errors import Mistake
from sevenfold.replay.policies import (
    BUILT_IN,
    DEFAULT,
    LAYERS,
    Policy,
    active,
    in_vain,
    policy,
    unheeded,
    without,
)


class Chosen(msgspec.Struct, frozen=True):
    """A policy that is replayed: a row of the table."""

    policy: Policy
    note: str = ""
    """What it asks for in vain; empty for most."""


def chosen(names: Sequence[str], left_out: Sequence[str], *, compare: bool) -> tuple[Chosen, ...]:
    """The policies; when they are compared, each layer that is left out makes one more."""
    every = compare and not names and not left_out
    wanted = BUILT_IN if every else names or (DEFAULT,)
    plain = [(policy(name), name not in BUILT_IN) for name in wanted]
    each: list[Sequence[str]] = [(), *([word] for word in left_out)] if compare else [left_out]
    out = [_row(one, less, own=own) for one, own in plain for less in each]
    _check_vain([one for one, _ in plain], left_out)
    twice = [name for name, n in Counter(one.policy.name for one in out).items() if n > 1]
    if twice:
        raise Mistake(f"the policy {twice[0]!r} is named twice; leave one of them out")
    return tuple(out)


def _row(one: Policy, left_out: Sequence[str], *, own: bool) -> Chosen:
    less = without(one, left_out)
    said = [unheeded(one)] if own else []
    if vain := in_vain(one, left_out):
        are = "is" if len(vain) == 1 else "are"
        same = f", so this is {one.name} itself" if len(vain) == len(left_out) else ""
        said.append(f"{', '.join(vain)} {are} off in {one.name}{same}")
    return Chosen(less, "; ".join(text for text in said if text))


def _check_vain(policies: Sequence[Policy], left_out: Sequence[str]) -> None:
    """`Mistake` for what is off in every policy: its row would be one that is there already."""
    for word in left_out:
        if all(in_vain(one, [word]) for one in policies):
            known = [name for name in LAYERS if any(active(one)[name] for one in policies)]
            names = ", ".join(one.name for one in policies)
            raise Mistake(
                f"{word} is off in {names}, so leaving it out changes nothing; "
                f"what is on there is {', '.join(known)}, and flags of theirs"
            )
