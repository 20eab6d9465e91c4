"""What can be set about dreaming."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class DreamSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 6: how often memories are consolidated, and whether the user is asked first."""

    hours: Annotated[
        float,
        Meta(gt=0, description="Hours from one dream to the next, at the least.", examples=[24]),
    ] = 24.0
    sessions: Annotated[
        int,
        Meta(
            ge=0,
            description="Sessions that have to be touched since the last dream, without the current one.",
            examples=[5],
        ),
    ] = 5
    scan_minutes: Annotated[
        float,
        Meta(ge=0, description="Minutes between two counts of the sessions.", examples=[10]),
    ] = 10.0
    stale_minutes: Annotated[
        float,
        Meta(
            gt=0,
            description="Minutes after which a dream that is still going on blocks no other.",
            examples=[60],
        ),
    ] = 60.0
    steps: Annotated[
        int,
        Meta(
            ge=1,
            le=200,
            description="How often the model may answer in one dream; one that is still at work then is "
            "stopped, and nothing of it is kept.",
            examples=[30],
        ),
    ] = 30
    non_interactive: Annotated[
        bool,
        Meta(
            description="Also where nobody sits in front of it: single questions on the command line, "
            "programs, remote runs.",
            examples=[True],
        ),
    ] = False
    review: Annotated[
        bool,
        Meta(
            description="Show what a dream would change and ask before it is saved.",
            examples=[True],
        ),
    ] = False
