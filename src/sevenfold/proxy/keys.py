"""Which conversation a request belongs to, and whether its client can read files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.context.formats import encode_canonical, strip_cache_marks
from sevenfold.core.errors import StorageFailure
from sevenfold.core.messages import Json
from sevenfold.layers.l2_microcompaction.cost import SHELLS
from sevenfold.proxy.body import ClientBody, decode_raw, make_digest

CLAUDE_SESSION: Final = "x-claude-code-session-id"
CLAUDE_AGENT: Final = "x-claude-code-agent-id"
CODEX_SESSION: Final = ("session-id", "session_id")
CODEX_THREAD: Final = ("thread-id", "thread_id", "conversation_id")
MAIN: Final = "main"
READING_TOOLS: Final = SHELLS | {
    "Grep", "Read", "cat", "grep", "open_file", "read", "read_file", "str_replace_based_edit_tool", "view",
    "view_file",
}  # fmt: skip
"""Tools with which a client can read back what was cleared."""
_SAFE: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


class ConversationKey(msgspec.Struct, frozen=True):
    """The names under which a client keeps a conversation."""

    session: str
    agent: str
    model: str
    claude: bool = False  # The client is Claude Code, which reads its own project folder unasked

    @property
    def digest(self) -> str:
        return make_digest(self.session.encode(), self.agent.encode(), self.model.encode())


def find_key(headers: Mapping[str, str], body: ClientBody, tools: Sequence[Json]) -> ConversationKey:
    """By the headers of Claude Code or Codex; else by system prompt, tools and the first words."""
    if session := headers.get(CLAUDE_SESSION):
        return ConversationKey(session, headers.get(CLAUDE_AGENT) or MAIN, body.model, True)
    session = next((headers[name] for name in CODEX_SESSION if headers.get(name)), "")
    if session:
        thread = next((headers[name] for name in CODEX_THREAD if headers.get(name)), MAIN)
        return ConversationKey(session, thread, body.model)
    names = " ".join(name_tool(tool) for tool in tools)
    told = (decode_raw(raw) for raw in body.messages)
    first = next((one for one in told if isinstance(one, dict) and one.get("role") == "user"), {})
    said = encode_canonical(strip_cache_marks(first))  # the client moves its marks
    return ConversationKey(make_digest(body.system, names.encode(), said), MAIN, body.model)


def name_tool(tool: Any) -> str:
    """The name of a tool, in the words of either API."""
    if not isinstance(tool, dict):
        return ""
    function = tool.get("function")
    named = function if isinstance(function, dict) else tool
    return str(named.get("name") or tool.get("type") or "")


def list_reading_tools(tools: Sequence[Any]) -> list[str]:
    """The client's tools that read files or run commands; some clients group their tools."""
    groups = (tool["tools"] if isinstance(tool, dict) and "tools" in tool else [tool] for tool in tools)
    names = (name_tool(tool) for group in groups if isinstance(group, list) for tool in group)
    return [name for name in names if name in READING_TOOLS]


def find_claude_results(config: Path, session: str) -> Path:
    """The folder in which Claude Code keeps this session's tool results, and which it may read."""
    if not session or not _SAFE.issuperset(session):
        raise StorageFailure(
            "the session has no name that can be a folder; its results stay where they are"
        )
    for transcript in sorted(config.glob(f"projects/*/{session}.jsonl")):
        return transcript.with_suffix("") / "tool-results"
    raise StorageFailure(f"{config / 'projects'} has no session {session} yet; its results stay")
