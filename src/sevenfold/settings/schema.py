"""Every setting: its key, its type, its default and what it means, in one place.

The names in a file are camelCase; the flags and the moments of hooks keep the names they have.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from sevenfold.core.request import Ttl
from sevenfold.hooks.events import HookEvents
from sevenfold.models.capabilities import ANTHROPIC_URL, OPENAI_URL
from sevenfold.settings.files import merge_values
from sevenfold.settings.layers import (
    POLICIES,
    AgentSettings,
    Amount,
    ClientSettings,
    CompactionSettings,
    Count,
    DreamSettings,
    ExtractionSettings,
    MicroSettings,
    NotesSettings,
    PolicyName,
    RecallSettings,
    SideWay,
    Switches,
    ToolResultSettings,
    describe,
)
from sevenfold.tools.permission_settings import Mode, PermissionRules, SandboxUse

STRICTEST_FIRST: Final[tuple[Mode, ...]] = (
    "plan",
    "dontAsk",
    "default",
    "acceptEdits",
    "bypassPermissions",
)
Effort: TypeAlias = Literal["minimal", "low", "medium", "high", "xhigh", "max"]
Scope: TypeAlias = Literal["repository", "worktree", "folder", "user"]
Url: TypeAlias = Annotated[
    str, Meta(pattern=r"^https?://[^/\s]", title="an address that begins with http:// or https://")
]
Rules: TypeAlias = tuple[Annotated[str, Meta(min_length=1)], ...]


class PermissionSettings(
    PermissionRules, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=False
):
    """Rules for tools: allowed, asked about, denied."""

    mode: Annotated[
        Mode,
        describe(
            "How a session starts: `default` asks, `acceptEdits` does not ask about edits, `plan` only "
            "reads, `dontAsk` refuses what it would have to ask about, `bypassPermissions` never asks. "
            "`defaultMode` is another name for it.",
            "plan",
        ),
    ] = "default"
    allow: Annotated[Rules, describe("What may run without a question.", ["Bash(ls:*)"])] = ()
    ask: Annotated[Rules, describe("What is asked about every time.", ["Bash(git push:*)"])] = ()
    deny: Annotated[
        Rules, describe("What may never run; it counts wherever it is written.", ["Read(./.env)"])
    ] = ()
    additional_directories: Annotated[
        Rules,
        describe(
            "Folders outside the project that tools may work in; a relative one begins at the project.",
            ["../shared"],
        ),
    ] = ()


class TelemetrySettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Spans and metrics for OpenTelemetry."""

    enabled: Annotated[
        bool,
        describe(
            "Hand spans and metrics to OpenTelemetry where the program around us has set it up. Nothing "
            "is sent otherwise, and never what was said.",
            False,
        ),
    ] = True


class StatusLineSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A command whose output stands below the prompt."""

    type: Annotated[Literal["command"], describe("Only commands are known.")] = "command"
    command: Annotated[
        str,
        describe(
            "A shell command that prints the line below the prompt. It is given the session as JSON on "
            "stdin; see [chat](chat.md).",
            "~/.sevenfold/status.sh",
        ),
    ] = ""
    padding: Annotated[Annotated[int, Meta(ge=0, le=20)], describe("Spaces before the line.")] = 0


class NotificationSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The signal at the end of a long turn."""

    how: Annotated[
        Literal["bell", "desktop", "off"],
        describe(
            "How chat calls you when a long turn has ended or asks something: the terminal's `bell`, a "
            "message that many terminals show on the `desktop`, or `off`.",
            "desktop",
        ),
    ] = "bell"
    after_seconds: Annotated[Amount, describe("Seconds after which a turn is long.")] = 30


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All settings of a session, merged from all files."""

    model: Annotated[
        str | None,
        describe(
            "Which model answers. Unset: a Claude model with a key, `offline` without.", "claude-sonnet-4-5"
        ),
    ] = None
    policy: Annotated[
        PolicyName,
        describe(
            "How the layers spend: `balanced` compacts by size and works in the background the cheaper "
            "way; `specified` keeps to the order and the numbers of the description: notes at their "
            "steps, summaries at the limit; `thrifty` is the cheapest that was found. It gives other "
            "settings their defaults: what you set yourself counts.",
            "thrifty",
        ),
    ] = "balanced"
    theme: Annotated[
        str,
        describe(
            "The colours of chat: `dark` or `light`, after the background of your terminal, or `plain` "
            "for none.",
            "light",
        ),
    ] = "dark"
    status_line: StatusLineSettings = StatusLineSettings()
    notifications: NotificationSettings = NotificationSettings()
    permissions: PermissionSettings = PermissionSettings()
    sandbox: Annotated[
        SandboxUse,
        describe(
            "Which commands run in the sandbox (Landlock, Linux 5.13 or newer). `unasked`: those that run "
            "without a question; they write nothing, reach no network, and read the project and the "
            "system's programs alone. `all`: also those that you allowed; they write inside the project "
            "only. `off`: none.",
            "all",
        ),
    ] = "unasked"
    hooks: HookEvents = HookEvents()
    env: Annotated[
        dict[str, str],
        describe(
            "More environment variables for tools and hooks. Never from a file that is part of the "
            "project.",
            {"PAGER": "cat"},
        ),
    ] = {}
    mcp_servers: Annotated[
        dict[str, dict[str, Any]],
        describe(
            "MCP servers whose tools a chat has, in every project; see [MCP](mcp.md). Never from a file "
            "that is part of the project: that is `.mcp.json`, and waits for your trust.",
            {"files": {"command": "files-server", "args": ["--root", "${HOME}/notes"]}},
        ),
    ] = {}
    anthropic_base_url: Annotated[
        Url, describe("Where the Anthropic Messages API is.", "http://127.0.0.1:8080")
    ] = ANTHROPIC_URL
    openai_base_url: Annotated[
        Url, describe("Where the OpenAI-compatible API is.", "http://127.0.0.1:11434/v1")
    ] = OPENAI_URL
    max_steps: Annotated[Count, describe("How often the model may answer in one turn.")] = 100
    max_output_tokens: Annotated[
        Amount,
        describe(
            "The longest reply that is asked for at first; one that is cut there is asked for again "
            "with all the room there is. 0: as long as the model can.",
            8_000,
        ),
    ] = 16_000
    window: Annotated[
        Count | None,
        describe(
            "The context window in tokens. It can only lower that of a known model, and sets that of "
            "one nobody knows.",
            200_000,
        ),
    ] = None
    betas: Annotated[
        tuple[str, ...],
        describe(
            "Beta features of the Anthropic API that every request asks for. `context-1m-2025-08-07` "
            "means a million tokens for a model that no table knows; for a known one put `[1m]` behind "
            "its name.",
            ["context-1m-2025-08-07"],
        ),
    ] = ()
    auto_compact_percent: Annotated[
        Annotated[float, Meta(gt=0, le=100)] | None,
        describe(
            "Compact when this much is used of the window less what a reply may need. It can only lower "
            "the limit.",
            80,
        ),
    ] = None
    block_limit: Annotated[
        Count | None, describe("Send no request that is larger than this, in tokens.", 150_000)
    ] = None
    cache_ttl: Annotated[Ttl, describe("How long the provider keeps a prefix in its cache.", "1h")] = "5m"
    system_ttl: Annotated[
        Ttl | None,
        describe(
            "The same for what stands before the messages, tools and system prompt. Unset: an hour "
            "where a person talks to it, who may be silent for longer than `cacheTtl`, else as long as "
            "`cacheTtl`. Set it to `5m` for a gateway that does not know lifetimes of an hour.",
            "5m",
        ),
    ] = None
    thinking_budget: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        describe("Tokens the model may think; 0: it does not. Unset: as the model does.", 8_000),
    ] = None
    effort: Annotated[
        Effort | None, describe("How hard the model tries, where it can be told.", "high")
    ] = None
    drop_thinking: Annotated[
        bool,
        describe(
            "Ask the provider to drop thinking that no longer fits what stands before it, instead of "
            "refusing the request. Then layers can make room in the middle of a tool loop, too. Only "
            "for models that bind their thinking, and where the provider offers it; a session keeps it "
            "as it began.",
            True,
        ),
    ] = False
    edits_cache: Annotated[
        bool,
        describe(
            "The server behind `anthropicBaseUrl` can delete tool results from its cached prefix. The "
            "simulator can; no public API does.",
            True,
        ),
    ] = False
    cleanup_days: Annotated[
        Count, describe("Days that transcripts and stored tool results are kept. Memory is kept.")
    ] = 30
    memory_enabled: Annotated[bool, describe("Whether durable memory is used.", False)] = True
    memory_directory: Annotated[
        Annotated[str, Meta(min_length=3)] | None,
        describe(
            "Where memory lives instead of below the home folder. Never from a file that is part of the "
            "project.",
            "~/notes/memory",
        ),
    ] = None
    scope: Annotated[Scope, describe("What shares one memory.", "worktree")] = "repository"
    team_plain_remotes: Annotated[
        bool,
        describe(
            "The repository of a team may be reached over `http://` and `git://`, where anybody on the "
            "way can read and change what is sent.",
            True,
        ),
    ] = False
    guidelines: Annotated[
        str | None,
        describe("Text added to the rules of memory in the prompt.", "Never save names of customers."),
    ] = None
    tool_results: ToolResultSettings = ToolResultSettings()
    micro: MicroSettings = MicroSettings()
    notes: NotesSettings = NotesSettings()
    compaction: CompactionSettings = CompactionSettings()
    recall: RecallSettings = RecallSettings()
    extraction: ExtractionSettings = ExtractionSettings()
    dream: DreamSettings = DreamSettings()
    agents: AgentSettings = AgentSettings()
    side_work: Annotated[
        SideWay,
        describe(
            "How notes, memories and status lines are asked for: `fork` on the cached prefix of the "
            "conversation, `small` with what is new alone on a small model, `cheapest` by the price "
            "table, each time. Where tokens are free, `cheapest` is a fork.",
            "fork",
        ),
    ] = "cheapest"
    side_model: Annotated[
        str | None,
        describe(
            "The small model for `sideWork`. Unset: the one that the price table has for the provider, "
            "else the model of the conversation.",
            "claude-haiku-4-5",
        ),
    ] = None
    assistant_mode: Annotated[
        bool,
        describe(
            "For sessions that go on for days: what is worth keeping is noted in a daily log, and the "
            "first rest of the next day makes memories of it.",
            True,
        ),
    ] = False
    flags: Switches = Switches()
    prices: Annotated[
        Path | None,
        describe(
            "A TOML file with prices of your own, and windows (`window`, `max_output`) that count "
            "before ours; a relative one begins where the settings file is.",
            "prices.toml",
        ),
    ] = None
    clients: ClientSettings = ClientSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    daily_background_limit: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        describe(
            "The most that work in the background may cost in a day, in the currency of the price "
            "table; under `specified` 200. null: no limit.",
            1.0,
        ),
    ] = 5.0


def make_settings(values: dict[str, Any]) -> Settings:
    """Settings of values that were checked before, over those that their policy gives."""
    whole = merge_values(POLICIES[values.get("policy", Settings().policy)], values)
    return msgspec.convert(whole, Settings, dec_hook=lambda kind, value: kind(value))
