"""The one place where layers meet: who acts at which moment, cheapest first."""

from __future__ import annotations

from typing import Literal, TypeAlias

from sevenfold.layers.block_check import BlockCheck
from sevenfold.protocols import Layers

Role: TypeAlias = Literal["main", "agent", "fork"]


def standard(role: Role = "main") -> Layers:
    """The layers of a conversation. A fork has none of its own: it lives on its parent's view."""
    if role == "fork":
        return Layers()
    return Layers(fit=(BlockCheck(),))
