"""An event of a client's hook: the JSON it hands over, and the JSON it takes as an answer.

Claude Code and Codex have one shape of both. Gemini CLI has events of its own names and denies a tool in
another way; the plugin for opencode speaks Claude Code's shape.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from sevenfold.core.errors import Mistake
from sevenfold.settings.environment import Environment

Moment: TypeAlias = Literal["start", "prompt", "before_tool", "after_tool", "compaction", "rest", "end"]
MOMENTS: Final[dict[str, Moment]] = {
    "SessionStart": "start",
    "UserPromptSubmit": "prompt",
    "PreToolUse": "before_tool",
    "PostToolUse": "after_tool",
    "PreCompact": "compaction",
    "Stop": "rest",
    "SubagentStop": "rest",
    "SessionEnd": "end",
    # Gemini CLI
    "BeforeAgent": "prompt",
    "BeforeTool": "before_tool",
    "AfterTool": "after_tool",
    "PreCompress": "compaction",
    "AfterAgent": "rest",
}
_OF_GEMINI: Final = frozenset({"BeforeAgent", "BeforeTool", "AfterTool", "PreCompress", "AfterAgent"})
NAMES: Final = {"claude": "Claude Code", "codex": "Codex", "gemini": "Gemini CLI", "opencode": "opencode"}
"""The clients that we know, by the word that stands for them on the command line."""
LARGEST: Final = 32 << 20  # Bytes of an event
_PATCH: Final = "*** Begin Patch"
_PATCHED: Final = ("*** Add File", "*** Update File")


def find_client_environment(environment: Environment, client: str, home: Path | None = None) -> Environment:
    """The environment in which the memory is the one that the client has already.

    Claude Code has a folder of memories; the other clients get the one that Sevenfold keeps.
    """
    if home is None and client == "claude":
        return environment.based(environment.claude_folder)
    return environment if home is None else environment.based(home)


class ClientEvent(msgspec.Struct, frozen=True):
    """What a client says when it runs a hook. Fields that we do not know are left out."""

    hook_event_name: str = ""
    session_id: str = ""
    transcript_path: str | None = None
    cwd: str = ""
    prompt: str = ""
    source: str = ""  # Why a session starts: startup, resume, clear, compact
    tool_name: str = ""
    tool_input: Any = None
    last_assistant_message: str | None = None

    @property
    def moment(self) -> Moment:
        """The moment in a session that the event stands for. Raises `Mistake` for an unknown event."""
        try:
            return MOMENTS[self.hook_event_name]
        except KeyError:
            known = ", ".join(MOMENTS)
            raise Mistake(f"there is no event {self.hook_event_name!r}; it is one of {known}") from None

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of the tool. A client that hands them on through MCP may write them as text."""
        given = self.tool_input
        if isinstance(given, str):
            try:
                given = msgspec.json.decode(given)
            except msgspec.DecodeError:
                return {}
        return given if isinstance(given, dict) else {}


def read_event(data: bytes | str, event: str = "") -> ClientEvent:
    """The event in these bytes; `event` is its name, if they do not say it. Raises `Mistake`."""
    if len(data) > LARGEST:
        raise Mistake(f"the event has {len(data):,} bytes, and at most {LARGEST:,} are read")
    try:
        found = msgspec.json.decode(data or b"{}", type=ClientEvent)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Mistake(f"this is no event of a client: {error}") from error
    return msgspec.structs.replace(found, hook_event_name=event) if event else found


def is_own_transcript(path: str, environment: Environment) -> bool:
    """True for the transcript of the session of Claude Code that started this process."""
    session = environment.variables.get("CLAUDE_CODE_SESSION_ID")
    if not session or "\0" in path:
        return False
    real = Path(os.path.realpath(path))
    folder = Path(os.path.realpath(environment.claude_folder / "projects"))
    return real.name == f"{session}.jsonl" and real.parent.parent == folder


class ProposedText(msgspec.Struct, frozen=True):
    """A file that a tool is about to write, and its text afterwards.

    Of a patch, and of an edit that does not fit the file: what is there now and what would be added.
    """

    path: Path
    text: str


def list_proposed_texts(event: ClientEvent) -> Iterator[ProposedText]:
    """The files that the tool of this event writes."""
    given, cwd = event.arguments, Path(event.cwd)
    if isinstance(patch := given.get("command", given.get("input")), str) and _PATCH in patch:
        yield from _read_patch(patch, cwd)
        return
    name = given.get("file_path", given.get("filePath"))
    if not isinstance(name, str) or not name:
        return
    if isinstance(text := given.get("content"), str):
        yield ProposedText(cwd / name, text)
        return
    edits = given["edits"] if isinstance(given.get("edits"), list) else [given]
    pairs = [pair for one in edits if (pair := _read_edit(one)) is not None]
    if pairs:
        text = _read_now(cwd / name)
        for old, new in pairs:
            text = text.replace(old, new) if old and old in text else f"{text}\n{new}"
        yield ProposedText(cwd / name, text)


def _read_edit(given: Any) -> tuple[str, str] | None:
    """The old and the new text of an edit; None for arguments that are no edit."""
    if not isinstance(given, dict):
        return None
    old = given.get("old_string", given.get("oldString"))
    new = given.get("new_string", given.get("newString"))
    return (old, new) if isinstance(old, str) and isinstance(new, str) else None


def _read_now(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _read_patch(patch: str, cwd: Path) -> Iterator[ProposedText]:
    """The files of a patch of Codex."""
    path: Path | None = None
    lines = list[str]()
    for line in [*patch.split("\n"), "*** End Patch"]:
        if line.startswith("*** Move to: "):
            path = cwd / line.partition(": ")[2].strip()
        elif line.startswith("*** "):
            if path is not None:
                yield ProposedText(path, "\n".join([*lines, ""]))
            opening, _, name = line.partition(": ")
            path = cwd / name.strip() if opening in _PATCHED else None
            lines = [_read_now(path)] if path is not None and opening == _PATCHED[1] else []
        elif line.startswith("+"):
            lines.append(line.removeprefix("+"))


def answer_context(event: ClientEvent, text: str) -> dict[str, Any]:
    """The answer that adds a text behind what the user said; nothing for an empty one."""
    if not text:
        return {}
    return {"hookSpecificOutput": {"hookEventName": event.hook_event_name, "additionalContext": text}}


def answer_denial(event: ClientEvent, reason: str) -> dict[str, Any]:
    """The answer that keeps the tool from running, with the reason for the model."""
    if event.hook_event_name in _OF_GEMINI:
        return {"decision": "deny", "reason": reason}
    said = {"permissionDecision": "deny", "permissionDecisionReason": reason}
    return {"hookSpecificOutput": {"hookEventName": event.hook_event_name, **said}}


def answer_message(text: str) -> dict[str, Any]:
    """The answer that shows the user one line; nothing for an empty one."""
    return {"systemMessage": f"sevenfold: {text}"} if text else {}
