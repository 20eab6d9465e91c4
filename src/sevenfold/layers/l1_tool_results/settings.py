"""What can be set about large tool results."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

Characters: TypeAlias = Annotated[int, Meta(ge=1)]


class ToolResultSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 1: when a tool result goes to disk, and what is shown of it."""

    most_characters: Annotated[
        Characters,
        Meta(
            description="A tool result longer than this goes to disk; what the tool itself allows may "
            "be less.",
            examples=[50_000],
        ),
    ] = 50_000
    limits: Annotated[
        dict[str, Characters],
        Meta(
            description="Another limit for the results of a tool, by its name.",
            examples=[{"Bash": 10_000}],
        ),
    ] = {}
    most_per_message: Annotated[
        Characters,
        Meta(
            description="All results of one message together; above it the largest go to disk.",
            examples=[200_000],
        ),
    ] = 200_000
    preview_bytes: Annotated[
        int,
        Meta(ge=0, description="How much of a stored result is shown.", examples=[2_000]),
    ] = 2_000
    quota_megabytes: Annotated[
        int,
        Meta(
            ge=1,
            description="The most that stored results of a project may take up; the oldest that no "
            "conversation still points to are removed.",
            examples=[1_000],
        ),
    ] = 1_000
