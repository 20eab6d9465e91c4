"""The layers that a policy asks for, made as a session makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from sevenfold.events import Cleared, Emit
from sevenfold.layers.block_check import BlockCheck
from sevenfold.layers.l2_microcompaction.candidates import Scan
from sevenfold.layers.l2_microcompaction.clearing import cleared
from sevenfold.layers.l2_microcompaction.settings import CLEARABLE
from sevenfold.layers.ladder import Lent, standard
from sevenfold.messages import Block
from sevenfold.protocols import Fit, Handback, Layers
from sevenfold.replay.policies import ClearRule, Policy
from sevenfold.request import Request
from sevenfold.storage.results import ResultStore
from sevenfold.tokens import Pressure
from sevenfold.transcript import Results

FOLDER: Final = Path("~/.sevenfold/projects/a-project/20260101-120000-session/tool-results")
"""About as long as such a path is."""


class Unwritten(ResultStore):
    """Names where a result would be kept, and writes nothing: a replay needs the words alone."""

    def __init__(self) -> None:
        super().__init__(lambda: FOLDER)

    def keep(self, use_id: str, content: str | tuple[Block, ...], *, lasting: bool = True) -> Path:
        return FOLDER / f"{use_id}.txt"


def layers_of(policy: Policy, lent: Lent) -> Layers:
    """As the product has them, but for what stops a session: the recording went on."""
    on, micro = policy.flags, policy.micro
    if not policy.compacts:
        on = replace(on, compact=False, reactive=False, notes=False, precompute=False)
    if (
        policy.clear is not None
    ):  # in place of layer 2; the plain rule of it is a setting, not a flag
        on = replace(on, micro_cost=False, micro_time=False)
        micro = replace(micro, policy="cost")
    made = standard(
        "main",
        with_fields(
            lent,
            switches=on,
            tool_results=policy.tool_results,
            micro=micro,
            notes=policy.notes,
            compaction=policy.compaction,
        ),
    )
    fit = tuple(layer for layer in made.fit if not isinstance(layer, BlockCheck))
    rule: tuple[Fit, ...] = (Counting(lent.emit, policy.clear),) if policy.clear else ()
    return with_fields(made, fit=(*rule, *fit), attach=(), rest=())


class Counting:
    """Clears old results by counting alone."""

    def __init__(self, emit: Emit, rule: ClearRule) -> None:
        self._emit, self._rule = emit, rule
        self._scan, self._store = Scan(CLEARABLE, ()), Unwritten()

    async def fit(self, request: Request, pressure: Pressure) -> Sequence[Handback]:
        self._scan.follow(request.view)
        rule, old = self._rule, self._scan.found[: -self._rule.keep]
        many = rule.every and len(old) >= rule.every
        large = rule.tokens and sum(one.tokens for one in old) >= rule.tokens
        if not old or not (many or large):
            return ()
        shown = cleared(old, request.view, self._store, self._emit)
        self._emit(Cleared("rule", tuple(shown), 0, 0, 0.0, 0.0, "counted"))
        return (Results(shown),)
