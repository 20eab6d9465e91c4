"""What can be set about recall and extraction."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

SelectorName: TypeAlias = Literal["hybrid", "model", "hybrid+model"]


class RecallSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 5: which memories are attached to a question, how many, and how much of them."""

    selector: Annotated[
        SelectorName,
        Meta(
            description="`hybrid` searches by words and by meaning and asks no model; `model` lets a model "
            "choose from the newest 200; `hybrid+model` lets it choose from the best 20 of the search.",
            examples=["hybrid+model"],
        ),
    ] = "hybrid"
    limit: Annotated[
        int, Meta(ge=1, le=20, description="The most that are attached at once.", examples=[5])
    ] = 5
    lines: Annotated[
        int, Meta(ge=1, description="The most lines of one that are shown.", examples=[200])
    ] = 200
    bytes: Annotated[
        int, Meta(ge=512, description="The most bytes of one that are shown.", examples=[4_096])
    ] = 4_096
    total_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="The most bytes of recalled memories in view at the same time; less in windows "
            "below 200,000 tokens. 0: nothing is recalled.",
            examples=[61_440],
        ),
    ] = 61_440
    model: Annotated[
        str | None,
        Meta(
            description="Which model chooses; a small one will do. Unset: the model of the conversation.",
            examples=["claude-haiku-4-5"],
        ),
    ] = None
    wait_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000,
            description="How long a search may hold up the first request of a turn, in milliseconds; one "
            "that takes longer goes on beside the reply. 0: never. A model that chooses is not waited for.",
            examples=[50],
        ),
    ] = 50
    first_wait_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000,
            description="The same for the first search of a session, which has to open the index: a single "
            "question on the command line would else never see a memory.",
            examples=[1_000],
        ),
    ] = 1_000
    timeout_seconds: Annotated[
        float,
        Meta(gt=0, description="How long a model that chooses may take.", examples=[20]),
    ] = 20.0


class ExtractionSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 5: when the conversation is looked through for what is worth remembering."""

    every: Annotated[
        int,
        Meta(ge=1, description="After so many turns; 1: after each.", examples=[3]),
    ] = 1
    patient: Annotated[
        bool,
        Meta(
            description="Where tokens cost money, a turn in which nothing lasting was said waits until "
            "you are silent, or the session ends: the look then also keeps the provider's cache. Off: "
            "after every turn.",
            examples=[False],
        ),
    ] = True
    steps: Annotated[
        int,
        Meta(
            ge=1,
            le=20,
            description="How often the model may answer in one run: one reply that reads, one that "
            "writes, and some to mend what was refused.",
            examples=[5],
        ),
    ] = 5
    drain_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="How long the end of a session waits for a run in flight, and for what waited "
            "for a silence. 0: it waits for nothing, and what waited is looked at on resume.",
            examples=[60],
        ),
    ] = 60.0
    non_interactive: Annotated[
        bool,
        Meta(
            description="Also where nobody sits in front of it: single questions on the command line, "
            "programs, remote runs.",
            examples=[True],
        ),
    ] = False
