"""The settings of the seven layers, and a switch for every layer and mechanism."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from sevenfold.core.events import Emit, Failed, Notice
from sevenfold.core.messages import Json

if TYPE_CHECKING:
    from openfeature.client import OpenFeatureClient
    from openfeature.flag_evaluation import FlagEvaluationDetails

Count: TypeAlias = Annotated[int, Meta(ge=1)]
Amount: TypeAlias = Annotated[int, Meta(ge=0)]
Duration: TypeAlias = Annotated[float, Meta(ge=0)]
Positive: TypeAlias = Annotated[float, Meta(gt=0)]
Factor: TypeAlias = Annotated[float, Meta(ge=1)]


def describe(text: str, example: object = None, *, ge: int | None = None, le: int | None = None) -> Meta:
    """The description of a setting. Messages suggest the `example`, or else the default."""
    return Meta(description=text, examples=None if example is None else [example], ge=ge, le=le)


class ToolResultSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 1: when a tool result goes to disk, and what is shown of it."""

    most_characters: Annotated[
        Count,
        describe("A tool result longer than this goes to disk; what the tool itself allows may be less."),
    ] = 50_000
    limits: Annotated[
        dict[str, Count],
        describe("Another limit for the results of a tool, by its name.", {"Bash": 10_000}),
    ] = {}
    most_per_message: Annotated[
        Count, describe("All results of one message together; above it the largest go to disk.")
    ] = 200_000
    preview_bytes: Annotated[Amount, describe("How much of a stored result is shown.")] = 2_000
    quota_megabytes: Annotated[
        Count,
        describe(
            "The most that stored results of a project may take up; the oldest that no conversation "
            "still points to are removed."
        ),
    ] = 1_000


CLEARABLE: Final = ("Read", "Bash", "Grep", "Glob", "WebSearch", "WebFetch", "Edit", "Write")


class MicroSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 2: whether and when old tool results are cleared."""

    policy: Annotated[
        Literal["cost", "plain"],
        describe(
            "`cost` clears when it saves more than it costs; `plain` clears only after nobody has "
            "spoken for `idleMinutes`.",
            "plain",
        ),
    ] = "cost"
    tools: Annotated[
        tuple[str, ...],
        describe("Whose results may be cleared, by the name of the tool.", ["Read", "Bash"]),
    ] = CLEARABLE
    keep_recent: Annotated[Count, describe("So many of the newest results always stay.")] = 5
    margin: Annotated[
        Factor, describe("`cost`: the expected saving must be this many times the price of the break.")
    ] = 4.5
    least_freed: Annotated[
        Amount,
        describe(
            "`cost`: while the cache is warm, a batch frees at least so many tokens; scaled down for "
            "windows below 200,000."
        ),
    ] = 40_000
    requests_ahead: Annotated[
        Count, describe("`cost`: how many requests a session is expected to make from any point on.")
    ] = 65
    need_weight: Annotated[
        Positive,
        describe(
            "`cost`: when the cache is cold, the chance that a result is needed again counts so many times."
        ),
    ] = 2.0
    thinking_replies: Annotated[
        Amount,
        describe(
            "When the cache is cold, thinking older than so many replies leaves the view, where the model "
            "does without it. 0: never."
        ),
    ] = 10
    need_model: Annotated[
        Path | None,
        describe(
            "`cost`: a file with coefficients of your own for which results will be needed again, "
            "written by `python -m benchmarks.policy.fit`; a relative one begins where the settings "
            "file is.",
            "need.toml",
        ),
    ] = None
    idle_minutes: Annotated[Positive, describe("`plain`: clear after so long a silence.")] = 60.0
    cache_edit_trigger: Annotated[
        Count, describe("Where the provider can delete from its cache: how many results there must be.")
    ] = 20
    keep_warm: Annotated[
        Amount,
        describe(
            "With the flag `pre_cold`: at most so many requests in a row that only keep the cache warm "
            "while nobody speaks."
        ),
    ] = 2


class NotesSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 3: when notes are brought up to date, how long they get, and what is kept beside them.

    Tokens are those of a window of 200,000; in a smaller window they are as much smaller.
    """

    priced: Annotated[
        bool,
        describe(
            "Take notes also where tokens cost money. Each update is a request of its own, so without "
            "it only models that cost nothing take notes.",
            True,
        ),
    ] = False
    first_at: Annotated[
        Amount,
        describe(
            "Notes are begun when the conversation has so many tokens. System prompt, tools and what the "
            "session opens with do not count."
        ),
    ] = 10_000
    grown_by: Annotated[
        Amount, describe("They are brought up to date when it has grown by so many tokens.")
    ] = 5_000
    tool_calls: Annotated[
        Amount, describe("And, while the model is still calling tools, after so many calls.")
    ] = 3
    section_tokens: Annotated[Count, describe("The most that a section should hold.")] = 2_000
    total_tokens: Annotated[Count, describe("The most that all sections should hold.")] = 12_000
    keep_tokens: Annotated[
        Amount,
        describe(
            "When the notes stand in for the older part, at least so many tokens of the newest messages "
            "stay word for word."
        ),
    ] = 10_000
    keep_messages: Annotated[Amount, describe("And at least so many messages with words in them.")] = 5
    keep_at_most: Annotated[Amount, describe("And no more than this for the sake of the two.")] = 40_000
    least_freed: Annotated[
        float,
        describe(
            "The notes stand in only if that frees at least this share of the window; else a summary is "
            "asked for.",
            ge=0,
            le=1,
        ),
    ] = 0.2
    user_words: Annotated[
        Amount,
        describe(
            "What the user said earlier and is not in the notes is quoted beside them, in at most so "
            "many tokens."
        ),
    ] = 8_000
    wait_seconds: Annotated[Duration, describe("How long an update that is running is waited for.")] = 15.0
    stale_seconds: Annotated[Duration, describe("One that runs longer than this is not waited for.")] = 60.0


class CompactionSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 4: how the summary is asked for, and when to stop asking."""

    summary_tokens: Annotated[
        int,
        describe(
            "The longest summary that is asked for, analysis included; scaled down for windows below "
            "200,000.",
            ge=100,
        ),
    ] = 20_000
    by_size: Annotated[
        bool,
        describe(
            "Where tokens cost money, compact before the window is full: from `turnTokens` or `taskTokens` "
            "on, if that is expected to save more than it costs. Without it only a full window is "
            "compacted.",
            False,
        ),
    ] = True
    turn_tokens: Annotated[
        Amount,
        describe(
            "`bySize`: when the user speaks, from so many tokens of context on; scaled down for windows "
            "below 200,000."
        ),
    ] = 95_000
    task_tokens: Annotated[
        Amount,
        describe(
            "`bySize`: the same in the middle of a task, where what was just read is in use; scaled down "
            "for windows below 200,000."
        ),
    ] = 155_000
    cold_tokens: Annotated[
        Amount,
        describe(
            "`bySize`: the same when the provider's cache has expired, where all of it would have to be "
            "written anew; scaled down for windows below 200,000."
        ),
    ] = 65_000
    record_characters: Annotated[
        Amount,
        describe(
            "When the cache has expired, a summary is asked for on a record of its own, in which what "
            "tools were given and what they answered is cut to so many characters each. 0: on the whole "
            "conversation."
        ),
    ] = 2_000
    by_small_model: Annotated[
        bool,
        describe(
            "`bySize`: when the user speaks, the small model writes the summary from such a record, where "
            "that is cheaper (`sideWork`). Otherwise the model of the conversation always does.",
            False,
        ),
    ] = True
    margin: Annotated[
        Factor, describe("`bySize`: the expected saving must be this many times what it costs.")
    ] = 3.1
    requests_ahead: Annotated[
        Count, describe("`bySize`: how many requests a session is expected to make from any point on.")
    ] = 60
    replies_apart: Annotated[
        Count, describe("`bySize`: at least so many replies from one compaction to the next.")
    ] = 15
    names: Annotated[
        Amount,
        describe(
            "Tokens for a list of names and paths in what was replaced, by file; no model writes it. "
            "0: none. Scaled down for windows below 200,000."
        ),
    ] = 8_000
    files: Annotated[
        Amount, describe("So many of the files that were read or changed last are shown again.")
    ] = 15
    file_tokens: Annotated[
        Amount,
        describe(
            "Tokens of each of them. Of a longer one the lines around its newest changes are shown, or "
            "with `excerpts` off its path. Scaled down for windows below 200,000."
        ),
    ] = 600
    excerpts: Annotated[bool, describe("Show parts of files that are too long to be shown.", False)] = True
    server: Annotated[
        Literal["threshold", "onDemand"],
        describe(
            "How the provider compacts where the flag `server_compact` lets it: by itself at a "
            "threshold, or when a request of ours asks for it.",
            "onDemand",
        ),
    ] = "threshold"
    timeout_seconds: Annotated[Positive, describe("How long one request for a summary may take.")] = 300.0
    tries: Annotated[
        Count, describe("How often a request for a summary that is itself too long is shortened.")
    ] = 3
    failures: Annotated[
        Count, describe("After so many failed summaries in a row none is asked for any more.")
    ] = 3
    refills: Annotated[
        Count,
        describe(
            "After so many compactions in a row that helped only for `refilledWithin` replies, no "
            "summary is asked for any more."
        ),
    ] = 3
    refilled_within: Annotated[
        Amount, describe("A window that is full again after so many replies was filled too fast.")
    ] = 3


SideWay: TypeAlias = Literal["cheapest", "fork", "small"]
"""The way in which side work is asked for."""
SelectorName: TypeAlias = Literal["hybrid", "model", "hybrid+model"]


class RecallSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 5: which memories are attached to a question, how many, and how much of them."""

    selector: Annotated[
        SelectorName,
        describe(
            "`hybrid` searches by words and by meaning and asks no model; `model` lets a model choose "
            "from the newest 200; `hybrid+model` lets it choose from the best 20 of the search.",
            "hybrid+model",
        ),
    ] = "hybrid"
    limit: Annotated[int, describe("The most that are attached at once.", ge=1, le=20)] = 5
    lines: Annotated[Count, describe("The most lines of one that are shown.")] = 200
    bytes: Annotated[int, describe("The most bytes of one that are shown.", ge=512)] = 4_096
    total_bytes: Annotated[
        Amount,
        describe(
            "The most bytes of recalled memories in view at the same time; less in windows below "
            "200,000 tokens. 0: nothing is recalled."
        ),
    ] = 61_440
    model: Annotated[
        str | None,
        describe(
            "Which model chooses; a small one will do. Unset: the small model of `sideWork` where it costs "
            "less, else the model of the conversation.",
            "claude-haiku-4-5",
        ),
    ] = None
    wait_ms: Annotated[
        int,
        describe(
            "How long a search may hold up the first request of a turn, in milliseconds; one that takes "
            "longer goes on beside the reply. 0: never. A model that chooses is not waited for.",
            ge=0,
            le=1_000,
        ),
    ] = 50
    first_wait_ms: Annotated[
        int,
        describe(
            "The same for the first search of a session, which has to open the index: a single question "
            "on the command line would else never see a memory.",
            ge=0,
            le=10_000,
        ),
    ] = 1_000
    timeout_seconds: Annotated[Positive, describe("How long a model that chooses may take.")] = 20.0


class ExtractionSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 5: when the conversation is looked through for what is worth remembering."""

    batch: Annotated[
        Count,
        describe(
            "Where tokens cost money: after so many of your messages, or at the end of the session. 1: "
            "after every turn.",
            1,
        ),
    ] = 8
    least_requests: Annotated[
        Amount,
        describe(
            "Where tokens cost money, nothing is looked through before so many requests of the session, "
            "unless something lasting was said. What was left is looked at when the session goes on."
        ),
    ] = 20
    patient: Annotated[
        bool,
        describe(
            "Where it is done by a fork, what waits for its batch is looked through when you are silent, "
            "shortly before the provider drops the prefix: the look then also keeps that. Off: only the "
            "batch and the end of the session count.",
            False,
        ),
    ] = True
    steps: Annotated[
        int,
        describe(
            "How often the model may answer in one run: one reply that reads, one that writes, and some "
            "to mend what was refused.",
            ge=1,
            le=20,
        ),
    ] = 5
    drain_seconds: Annotated[
        Duration,
        describe(
            "How long the end of a session waits for a run in flight, and for what waited for a "
            "silence. 0: it waits for nothing, and what waited is looked at on resume."
        ),
    ] = 60.0
    non_interactive: Annotated[
        bool,
        describe(
            "Also where nobody sits in front of it: single questions on the command line, programs, "
            "remote runs.",
            True,
        ),
    ] = False
    by_fleet: Annotated[
        bool,
        describe(
            "In a project of a fleet: what you and the agent said goes to the fleet's database as a job, "
            "and a worker ('sevenfold fleet work --kinds extract') looks through it, not this machine.",
            True,
        ),
    ] = False


class DreamSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 6: how often memories are consolidated, and whether the user is asked first."""

    hours: Annotated[Positive, describe("Hours from one dream to the next, at the least.")] = 24.0
    sessions: Annotated[
        Amount, describe("Sessions that have to be touched since the last dream, without the current one.")
    ] = 5
    least_requests: Annotated[
        Amount,
        describe(
            "Where tokens cost money, no dream begins by itself before so many requests of the session: a "
            "short one cannot earn it back."
        ),
    ] = 20
    scan_minutes: Annotated[Duration, describe("Minutes between two counts of the sessions.")] = 10.0
    stale_minutes: Annotated[
        Positive, describe("Minutes after which a dream that is still going on blocks no other.")
    ] = 60.0
    steps: Annotated[
        int,
        describe(
            "How often the model may answer in one dream; one that is still at work then is stopped, "
            "and nothing of it is kept.",
            ge=1,
            le=200,
        ),
    ] = 30
    non_interactive: Annotated[
        bool,
        describe(
            "Also where nobody sits in front of it: single questions on the command line, programs, "
            "remote runs.",
            True,
        ),
    ] = False
    review: Annotated[
        bool, describe("Show what a dream would change and ask before it is saved.", True)
    ] = False


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Background work beside another agent, such as Claude Code, within `dailyBackgroundLimit`."""

    extraction: Annotated[
        bool,
        describe("Look through its sessions for what is worth remembering, in a process of its own.", True),
    ] = False
    dreams: Annotated[
        bool, describe("Consolidate its memory when a dream is due, in a process of its own.", True)
    ] = False


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Layer 7: whether the model may start agents, how many, and how long they are waited for."""

    enabled: Annotated[
        bool,
        describe(
            "The model may start agents and write to them; both tools cost tokens in every request.", False
        ),
    ] = True
    auto_background_seconds: Annotated[
        Duration,
        describe(
            "Seconds an agent is waited for before it goes on in the background; 0: it is waited for "
            "however long it takes."
        ),
    ] = 120.0
    most: Annotated[int, describe("Agents that may be at work at once.", ge=1, le=100)] = 20
    depth: Annotated[
        int,
        describe("How deep agents may start agents: 1, and only the main conversation may.", ge=1, le=5),
    ] = 3
    summary_seconds: Annotated[
        Duration, describe("Seconds from one short status of a background agent to the next; 0: none.")
    ] = 30.0
    reachable: Annotated[
        bool | None,
        describe(
            "Whether other sessions of this user on this machine may write to this one; left out: only "
            "where a person sits in front of it.",
            False,
        ),
    ] = None


def _flag(text: str) -> Meta:
    return describe(text, False)


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
    threads: Annotated[bool, _flag("The provider holds the conversation: only news are sent.")] = False


DOMAIN: Final = "sevenfold"
"""The OpenFeature domain whose provider is asked."""
LATCHED: Final = ("micro_api", "server_compact")
"""They put parameters into the frame of all requests, so they hold for a whole session."""


class Flags(Switches, frozen=True):
    """Every layer and mechanism, on or off."""

    def all_as_begun(self, session: Any) -> Flags:
        """Every switch as it was when the session began, as far as its record can be read."""
        begun = session.get("flags") if isinstance(session, dict) else None
        stored = begun if isinstance(begun, dict) else {}
        known = {n: v for n, v in stored.items() if n in self.__struct_fields__ and v in (True, False)}
        return replace(self, **known)

    def as_begun(self, session: Any, emit: Emit | None = None) -> Flags:
        """As they are now, but for those that the beginning of every request of a session depends on."""
        begun = self.all_as_begun(session)
        kept = {name: getattr(begun, name) for name in LATCHED}
        held = replace(self, **kept)
        changed = [name for name in kept if getattr(held, name) != getattr(self, name)]
        if changed and emit is not None:
            told = ", ".join(f"{n} {'on' if getattr(held, n) else 'off'}" for n in changed)
            emit(Notice(f"as this session began, and until it ends: {told}; a new one has it as set"))
        return held

    def by_now(self, session: Any) -> Flags:
        """The provider's word of this moment. One that has broken meanwhile changes nothing."""
        begun = session if isinstance(session, dict) else {"flags": msgspec.to_builtins(self)}
        return self.latch(self).as_begun(begun)

    @classmethod
    def latch(
        cls,
        settings: Switches | Mapping[str, bool] | None = None,
        client: OpenFeatureClient | None = None,
        emit: Emit | None = None,
    ) -> Flags:
        """The flags of one session: from the provider, else the settings, else the defaults.

        A provider that breaks changes nothing, and an event says so.
        """
        known: dict[str, bool] = msgspec.to_builtins(settings or Switches())
        flags = cls(**{name: known[name] for name in cls.__struct_fields__ if name in known})
        if client is None and "openfeature" not in sys.modules:
            return flags  # no provider can have been set, and importing it takes time
        if client is None:
            from openfeature import api

            client = api.get_client(DOMAIN)
        details = [client.get_boolean_details(n, getattr(flags, n)) for n in cls.__struct_fields__]
        broken = [answer for answer in details if _broken(answer)]
        if broken and emit is not None:
            names = ", ".join(answer.flag_key for answer in broken)
            emit(Failed("flags", f"{_broken(broken[0])}; as the settings have them: {names}"))
        return cls(**{answer.flag_key: answer.value for answer in details})


def _broken(details: FlagEvaluationDetails[Any]) -> str:
    """The error of a provider; an unknown flag is none."""
    from openfeature.exception import ErrorCode

    if details.error_code in (None, ErrorCode.FLAG_NOT_FOUND):
        return ""
    return f"{details.error_code}: {details.error_message or 'no reason given'}"


# --- policies ---------------------------------------------------------------------------------------------

PolicyName: TypeAlias = Literal["specified", "balanced", "thrifty"]

POLICIES: Final[dict[PolicyName, Json]] = {
    "specified": {
        "micro": {"policy": "plain", "thinkingReplies": 0},
        "compaction": {
            "bySize": False,
            "names": 0,
            "files": 5,
            "fileTokens": 5_000,
            "excerpts": False,
            "recordCharacters": 0,
            "bySmallModel": False,
        },
        "notes": {"priced": True},
        "extraction": {"batch": 1, "leastRequests": 0, "patient": False},
        "dream": {"leastRequests": 0},
        "sideWork": "fork",
        "dailyBackgroundLimit": 200.0,  # Notes on a million tokens: with 5 they end after an hour
        "flags": {"micro_api": False},
    },
    "balanced": {},
    "thrifty": {
        "compaction": {"turnTokens": 75_000, "taskTokens": 115_000, "coldTokens": 50_000, "margin": 2.0}
    },
}
"""Under one name, the settings with which all layers spend: those that differ from their defaults, as a
settings file would have them. Replay has the same names; `benchmarks/policy` has the figures."""
