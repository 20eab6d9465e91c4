"""What can be set about agents."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 7: whether the model may start agents, how many, and how long they are waited for."""

    enabled: Annotated[
        bool,
        Meta(
            description="The model may start agents and write to them; both tools cost tokens in "
            "every request.",
            examples=[False],
        ),
    ] = True
    auto_background_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="Seconds an agent is waited for before it goes on in the background; 0: it "
            "is waited for however long it takes.",
            examples=[120],
        ),
    ] = 120.0
    most: Annotated[
        int,
        Meta(ge=1, le=100, description="Agents that may be at work at once.", examples=[20]),
    ] = 20
    depth: Annotated[
        int,
        Meta(
            ge=1,
            le=5,
            description="How deep agents may start agents: 1, and only the main conversation may.",
            examples=[3],
        ),
    ] = 3
    summary_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="Seconds from one short status of a background agent to the next; 0: none.",
            examples=[30],
        ),
    ] = 30.0
    reachable: Annotated[
        bool | None,
        Meta(
            description="Whether other sessions of this user on this machine may write to this one; "
            "left out: only where a person sits in front of it.",
            examples=[False],
        ),
    ] = None
