"""What can be set about the notes on a session, and about what stays beside them when they stand in."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class NotesSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 3: when notes are brought up to date, how long they get, and what is kept beside them.

    Tokens are those of a window of 200,000; in a smaller window they are as much smaller.
    """

    first_at: Annotated[
        int,
        Meta(ge=0, description="Notes are begun at so many tokens of context.", examples=[10_000]),
    ] = 10_000
    grown_by: Annotated[
        int,
        Meta(
            ge=0,
            description="They are brought up to date when the context has grown by so many tokens.",
            examples=[5_000],
        ),
    ] = 5_000
    grown_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="... and by such a share of it. Every update reads the whole context once, so a "
            "large one is noted in larger steps. 0: only `grownBy` counts.",
            examples=[0.15],
        ),
    ] = 0.15
    pays_from: Annotated[
        int,
        Meta(
            ge=0,
            description="Where tokens cost money, notes once begun are brought up to date only from so "
            "many tokens of context on: below that they cost more than the summary they stand in for. 0: "
            "as everywhere else.",
            examples=[155_000],
        ),
    ] = 155_000
    tool_calls: Annotated[
        int,
        Meta(
            ge=0,
            description="And, while the model is still calling tools, after so many calls.",
            examples=[3],
        ),
    ] = 3
    section_tokens: Annotated[
        int, Meta(ge=1, description="The most that a section should hold.", examples=[2_000])
    ] = 2_000
    total_tokens: Annotated[
        int, Meta(ge=1, description="The most that all sections should hold.", examples=[12_000])
    ] = 12_000
    keep_tokens: Annotated[
        int,
        Meta(
            ge=0,
            description="When the notes stand in for the older part, at least so many tokens of the "
            "newest messages stay word for word.",
            examples=[10_000],
        ),
    ] = 10_000
    keep_messages: Annotated[
        int,
        Meta(ge=0, description="And at least so many messages with words in them.", examples=[5]),
    ] = 5
    keep_at_most: Annotated[
        int,
        Meta(ge=0, description="And no more than this for the sake of the two.", examples=[40_000]),
    ] = 40_000
    user_words: Annotated[
        int,
        Meta(
            ge=0,
            description="What the user said earlier and is not in the notes is quoted beside them, in at "
            "most so many tokens.",
            examples=[8_000],
        ),
    ] = 8_000
    wait_seconds: Annotated[
        float,
        Meta(ge=0, description="How long an update that is running is waited for.", examples=[15]),
    ] = 15.0
    stale_seconds: Annotated[
        float,
        Meta(ge=0, description="One that runs longer than this is not waited for.", examples=[60]),
    ] = 60.0
