"""What can be set about large tool results.

What can be set about clearing old tool results. What can be set about the notes on a session, and
about what stays beside them when they stand in. What can be set about compaction. What can be set
about recall and extraction. What can be set about dreaming. What can be set about agents. A switch
for every layer and mechanism.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from sevenfold.core.tokens import REFERENCE_WINDOW

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
            description="Another limit for the results of a tool, by its name.", examples=[{"Bash": 10_000}]
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
        int, Meta(ge=0, description="How much of a stored result is shown.", examples=[2_000])
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


CLEARABLE: Final = ("Read", "Bash", "Grep", "Glob", "WebSearch", "WebFetch", "Edit", "Write")


class MicroSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 2: whether and when old tool results are cleared."""

    policy: Annotated[
        Literal["cost", "plain"],
        Meta(
            description="`cost` clears when it saves more than it costs; `plain` clears only after "
            "nobody has spoken for `idleMinutes`.",
            examples=["plain"],
        ),
    ] = "cost"
    tools: Annotated[
        tuple[str, ...],
        Meta(
            description="Whose results may be cleared, by the name of the tool.",
            examples=[["Read", "Bash"]],
        ),
    ] = CLEARABLE
    keep_recent: Annotated[
        int, Meta(ge=1, description="So many of the newest results always stay.", examples=[5])
    ] = 5
    margin: Annotated[
        float,
        Meta(
            ge=1,
            description="`cost`: the expected saving must be this many times the price of the break.",
            examples=[4],
        ),
    ] = 4.0
    least_freed: Annotated[
        int,
        Meta(
            ge=0,
            description="`cost`: while the cache is warm, a batch frees at least so many tokens; scaled "
            "down for windows below 200,000.",
            examples=[40_000],
        ),
    ] = 40_000
    requests_ahead: Annotated[
        int,
        Meta(
            ge=1,
            description="`cost`: how many requests a session is expected to make from any point on.",
            examples=[50],
        ),
    ] = 50
    need_model: Annotated[
        Path | None,
        Meta(
            description="`cost`: a file with coefficients of your own for which results will be needed "
            "again, written by `python -m benchmarks.policy.fit`; a relative one begins where the settings "
            "file is.",
            examples=["need.toml"],
        ),
    ] = None
    idle_minutes: Annotated[
        float, Meta(gt=0, description="`plain`: clear after so long a silence.", examples=[60])
    ] = 60.0
    cache_edit_trigger: Annotated[
        int,
        Meta(
            ge=1,
            description="Where the provider can delete from its cache: how many results there must be.",
            examples=[20],
        ),
    ] = 20
    keep_warm: Annotated[
        int,
        Meta(
            ge=0,
            description="With the flag `pre_cold`: at most so many requests in a row that only keep the "
            "cache warm while nobody speaks.",
            examples=[2],
        ),
    ] = 2


class NotesSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 3: when notes are brought up to date, how long they get, and what is kept beside them.

    Tokens are those of a window of 200,000; in a smaller window they are as much smaller.
    """

    first_at: Annotated[
        int, Meta(ge=0, description="Notes are begun at so many tokens of context.", examples=[10_000])
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
        int, Meta(ge=0, description="And at least so many messages with words in them.", examples=[5])
    ] = 5
    keep_at_most: Annotated[
        int, Meta(ge=0, description="And no more than this for the sake of the two.", examples=[40_000])
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
        float, Meta(ge=0, description="How long an update that is running is waited for.", examples=[15])
    ] = 15.0
    stale_seconds: Annotated[
        float, Meta(ge=0, description="One that runs longer than this is not waited for.", examples=[60])
    ] = 60.0


class CompactionSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 4: how the summary is asked for, and when to stop asking."""

    summary_tokens: Annotated[
        int,
        Meta(
            ge=100,
            description="The longest summary that is asked for, analysis included; scaled down for "
            "windows below 200,000.",
            examples=[20_000],
        ),
    ] = 20_000
    by_price: Annotated[
        bool,
        Meta(
            description="When the user speaks, compact before the window is full, if that is expected "
            "to save more than it costs. Without it only a full window is compacted.",
            examples=[False],
        ),
    ] = True
    margin: Annotated[
        float,
        Meta(
            ge=1,
            description="`byPrice`: the expected saving must be this many times what it costs.",
            examples=[1.75],
        ),
    ] = 1.75
    large_margin: Annotated[
        float,
        Meta(
            ge=1,
            description="`byPrice`: the same for windows over 200,000 tokens, where there is room and "
            "less need be lost.",
            examples=[8],
        ),
    ] = 8.0
    requests_ahead: Annotated[
        int,
        Meta(
            ge=1,
            description="`byPrice`: how many requests a session is expected to make from any point on.",
            examples=[50],
        ),
    ] = 50
    least_tokens: Annotated[
        int,
        Meta(
            ge=0,
            description="`byPrice`: a context below this is left alone, whatever it would save; scaled "
            "down for windows below 200,000.",
            examples=[70_000],
        ),
    ] = 70_000
    names: Annotated[
        int,
        Meta(
            ge=0,
            description="Tokens for a list of names that stood in what was replaced, by file; no model "
            "writes it. 0: none. Scaled down for windows below 200,000.",
            examples=[4_000],
        ),
    ] = 4_000
    server: Annotated[
        Literal["threshold", "onDemand"],
        Meta(
            description="How the provider compacts where the flag `server_compact` lets it: by itself at "
            "a threshold, or when a request of ours asks for it.",
            examples=["onDemand"],
        ),
    ] = "threshold"
    timeout_seconds: Annotated[
        float, Meta(gt=0, description="How long one request for a summary may take.", examples=[300])
    ] = 300.0
    tries: Annotated[
        int,
        Meta(
            ge=1,
            description="How often a request for a summary that is itself too long is shortened.",
            examples=[3],
        ),
    ] = 3
    failures: Annotated[
        int,
        Meta(
            ge=1,
            description="After so many failed summaries in a row none is asked for any more.",
            examples=[3],
        ),
    ] = 3
    refills: Annotated[
        int,
        Meta(
            ge=1,
            description="After so many compactions in a row that helped only for `refilledWithin` "
            "replies, no summary is asked for any more.",
            examples=[3],
        ),
    ] = 3
    refilled_within: Annotated[
        int,
        Meta(
            ge=0,
            description="A window that is full again after so many replies was filled too fast.",
            examples=[3],
        ),
    ] = 3

    def margin_in(self, window: int) -> float:
        """How many times its price a summary has to save in a window of this size."""
        return self.large_margin if window > REFERENCE_WINDOW else self.margin


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
        float, Meta(gt=0, description="How long a model that chooses may take.", examples=[20])
    ] = 20.0


class ExtractionSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 5: when the conversation is looked through for what is worth remembering."""

    every: Annotated[int, Meta(ge=1, description="After so many turns; 1: after each.", examples=[3])] = 1
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


class DreamSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 6: how often memories are consolidated, and whether the user is asked first."""

    hours: Annotated[
        float, Meta(gt=0, description="Hours from one dream to the next, at the least.", examples=[24])
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
        float, Meta(ge=0, description="Minutes between two counts of the sessions.", examples=[10])
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
        Meta(description="Show what a dream would change and ask before it is saved.", examples=[True]),
    ] = False


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
        int, Meta(ge=1, le=100, description="Agents that may be at work at once.", examples=[20])
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


def _flag(description: str) -> Meta:
    return Meta(description=description, examples=[False])


class Switches(msgspec.Struct, frozen=True, kw_only=True):
    """A switch for every layer and mechanism."""

    tool_results: Annotated[bool, _flag("Layer 1: large tool results go to disk.")] = True
    aggregate_budget: Annotated[bool, _flag("Layer 1: the limit for all results of a message.")] = True
    micro_cost: Annotated[bool, _flag("Layer 2: old results are cleared when it pays.")] = True
    micro_time: Annotated[bool, _flag("Layer 2: the plain time rule instead.")] = False
    micro_cache_edit: Annotated[bool, _flag("Layer 2: deletions in the provider's cache.")] = True
    micro_api: Annotated[bool, _flag("Layer 2: the provider's context management.")] = True
    pre_cold: Annotated[bool, _flag("Layer 2: acts before the cache goes cold; it spends.")] = False
    notes: Annotated[bool, _flag("Layer 3: notes on this session are kept.")] = True
    payout: Annotated[bool, _flag("Layer 3: the notes stand in for a compaction.")] = True
    compact: Annotated[bool, _flag("Layer 4: the window is compacted when nearly full.")] = True
    reactive: Annotated[bool, _flag("Layer 4: compaction after a refusal as too long.")] = True
    precompute: Annotated[bool, _flag("Layer 4: the summary is prepared ahead.")] = False
    server_compact: Annotated[bool, _flag("Layer 4: the provider compacts.")] = False
    snip: Annotated[bool, _flag("Layer 4: whole old rounds leave the view.")] = False
    collapse: Annotated[bool, _flag("Layer 4: finished tool rounds become a short projection.")] = False
    recall: Annotated[bool, _flag("Layer 5: memories are recalled.")] = True
    extraction: Annotated[bool, _flag("Layer 5: memories are extracted after a turn.")] = True
    dream: Annotated[bool, _flag("Layer 6: memories are consolidated.")] = True
    team: Annotated[bool, _flag("Layer 5: memory shared with a team.")] = True
    agent_summaries: Annotated[bool, _flag("Layer 7: running agents say what they do.")] = True
