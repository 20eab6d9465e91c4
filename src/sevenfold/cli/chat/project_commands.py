"""`/init`, `/export`, `/permissions`, `/config` and `/status`."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from sevenfold import __version__
from sevenfold.cli.output import (
    CommandChoice,
    CommandOutcome,
    CommandReply,
    SendPrompt,
    format_call,
    format_count,
    format_outcome,
    format_percent,
    format_time,
    format_tokens,
    make_printable,
    to_one_line,
)
from sevenfold.cli.startup import save_user_settings
from sevenfold.core.errors import Mistake
from sevenfold.core.messages import Image, Message, Text, ToolResult, ToolUse, encode_block
from sevenfold.core.protocols import ToolFailed
from sevenfold.core.transcript import Entry, Reply
from sevenfold.models.capabilities import OFFLINE, parse_host
from sevenfold.session.commands import iterate_standing
from sevenfold.session.session import Session
from sevenfold.settings.files import is_outside
from sevenfold.storage.files import make_storage_failure
from sevenfold.tools.permission_settings import Mode
from sevenfold.tools.permissions import Behaviour

FILES: Final = ("AGENTS.md", "CLAUDE.md")
OVER: Final = "over"  # The word that allows /init and /export to replace a file


# --- /init ----------------------------------------------------------------------------------------------


def run_init(session: Session, rest: str) -> CommandOutcome:
    """`/init [FILE]`: by rule with the offline engine, else by a prompt of ours."""
    words = rest.split()
    allowed = words[-1:] == [OVER]
    names = words[:-1] if allowed else words
    tree = session.places.tree
    there = [name for name in FILES if (tree / name).is_file()]
    name = names[0] if names else next(iter(there), FILES[0])
    if len(names) > 1 or name not in FILES:
        raise Mistake(f"/init writes {' or '.join(FILES)}; name one of them, or none")
    _check_may_write(session)
    path = tree / name
    if is_outside(path, tree):
        raise Mistake(f"{path} is a link that leads out of the project; nothing was written")
    if path.exists() and not allowed:
        return _offer_replacement(path, f"/init {name} {OVER}")
    from sevenfold.cli.chat.instruction_draft import AGAIN, PROMPT, draft_instructions

    draft = draft_instructions(tree, besides=name)
    if session.model.name != OFFLINE:
        again = AGAIN if path.exists() else ""
        return SendPrompt(PROMPT.format(file=name, path=path, draft=draft.rstrip(), again=again))
    _write_text(path, draft)
    lines = format_count(draft.count("\n"), "line")
    return CommandReply(f"  wrote {path}: {lines}, by rule from the files of the project; read it once")


def _check_may_write(session: Session) -> None:
    if session.tools.permissions.mode == "plan":
        raise Mistake("in plan mode nothing is written; Shift-Tab leaves it")


def _offer_replacement(path: Path, line: str) -> CommandChoice:
    text = f"  {path} is there already; '{line}' replaces it"
    return CommandChoice(text, "  y replaces it, Enter leaves it: ", {"": "", "n": "", "y": line})


def _write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise make_storage_failure(error, path, "written") from error


# --- /export --------------------------------------------------------------------------------------------


def run_export(session: Session, rest: str) -> CommandOutcome:
    """`/export [FILE]`: everything that was said, also what was summarised since."""
    allowed = rest.endswith(f" {OVER}")
    name = rest.removesuffix(f" {OVER}").strip().strip("\"'") or f"{session.id}.md"
    try:
        path = session.tools.workspace.locate(name)
        path = path / f"{session.id}.md" if path.is_dir() else path
        there = path.exists()
    except (ToolFailed, OSError) as error:
        raise Mistake(f"{to_one_line(name, 80)} cannot be a file: {error}") from error
    _check_may_write(session)
    entries = list(iterate_standing(session.turn.transcript.entries))
    said = [one for one in map(_read_message, entries) if one is not None]
    if not said:
        raise Mistake("nothing has been said yet: there is nothing to export")
    if there and not allowed:
        return _offer_replacement(path, f"/export {name} {OVER}")
    if path.suffix.lower() == ".json":
        messages = [
            {"by": by, "role": message.role, "content": [encode_block(b) for b in message.content]}
            for by, message in said
        ]
        text = msgspec.json.encode({"session": session.id, "messages": messages}).decode("utf-8") + "\n"
    else:
        text = "\n\n".join(format_markdown(session.id, entries[0].at, said)) + "\n"
    _write_text(path, text)
    return CommandReply(f"  wrote {path}: {format_count(len(said), 'message')}")


def _read_message(entry: Entry) -> tuple[str, Message] | None:
    if isinstance(entry.what, Reply):
        return (entry.by, entry.what.message) if entry.by == "model" else None
    return (entry.by, entry.what) if isinstance(entry.what, Message) else None


def format_markdown(id: str, at: float, said: list[tuple[str, Message]]) -> Iterator[str]:
    """The conversation in Markdown: the user's words quoted, replies as they are, a line for each call."""
    results = {result.tool_use_id: result for _, message in said for result in message.results}
    yield f"# Conversation {id}\n\nBegun {format_time(at)}."
    for by, message in said:
        if by == "user":
            yield "\n".join(f"> {line}" for line in make_printable(message.text).split("\n"))
        elif message.role == "assistant":
            yield from _format_blocks(message, results)


def _format_blocks(message: Message, results: dict[str, ToolResult]) -> Iterator[str]:
    for block in message.content:
        if isinstance(block, Text) and block.text.strip():
            yield make_printable(block.text.strip())
        elif isinstance(block, ToolUse):
            answered = results.get(block.id)
            outcome = format_outcome(answered) if answered else "no answer"
            yield f"- `{format_call(block).replace('`', chr(39))}` · {outcome}"
        elif isinstance(block, Image):
            yield "*(an image)*"


# --- /permissions ---------------------------------------------------------------------------------------

_BEHAVIOURS: Final[tuple[Behaviour, ...]] = ("deny", "ask", "allow")
_USAGE: Final = "/permissions shows the rules; /permissions mode MODE, or allow, ask or deny and a RULE"


def run_permissions(session: Session, rest: str) -> CommandOutcome:
    """`/permissions`, `/permissions mode MODE`, `/permissions allow|ask|deny RULE`."""
    permissions = session.tools.permissions
    word, _, more = rest.partition(" ")
    more = more.strip()
    if not rest:
        return CommandReply("\n".join(_describe_permissions(session)))
    if word == "mode":
        mode = next((one for one in get_args(Mode) if one.lower() == more.lower()), None)
        if mode is None:
            raise Mistake(f"{more or 'that'} is no mode; the modes are {', '.join(get_args(Mode))}")
        permissions.mode = mode
        return CommandReply(f"  the mode is {mode}, for this session")
    behaviour = next((one for one in _BEHAVIOURS if one == word), None)
    if behaviour is None or not more:
        raise Mistake(_USAGE)
    permissions.add_rule(behaviour, more)
    return CommandReply(f"  {behaviour}: {more}, for this session; a deny rule counts before all others")


def _describe_permissions(session: Session) -> Iterator[str]:
    permissions = session.tools.permissions
    yield f"  mode: {permissions.mode} (Shift-Tab changes it)"
    kept = session.settings.permissions
    stored = {"allow": kept.allow, "ask": kept.ask, "deny": kept.deny}
    for behaviour in _BEHAVIOURS:
        rules = permissions.list_rules(behaviour)
        yield f"  {behaviour}: {'nothing' if not rules else ''}".rstrip()
        for rule in rules:
            where = "settings" if rule in stored[behaviour] else "this session"
            yield f"    {make_printable(rule)}  ({where})"
    for folder in kept.additional_directories:
        yield f"  also part of the project: {make_printable(folder)}"
    yield "  without a rule: what only reads in the project is allowed, the rest is asked about"
    yield f"  {_USAGE.partition('; ')[2]}: for this session; the settings hold for longer"


# --- /config --------------------------------------------------------------------------------------------


def run_config(session: Session, rest: str) -> CommandOutcome:
    """`/config` lists what is set, `/config KEY` explains a setting, `/config KEY VALUE` sets it."""
    from sevenfold.settings.checks import describe_settings

    key, _, value = rest.partition(" ")
    known = {one[0]: one for one in describe_settings()}
    values = msgspec.to_builtins(session.settings, enc_hook=str)
    if not key:
        return CommandReply("\n".join(_describe_config(session, known, values)))
    if key not in known:
        near = difflib.get_close_matches(key, known, 1, 0.5)
        hint = f"did you mean {near[0]}?" if near else "docs/reference/settings.md lists them all"
        raise Mistake(f"there is no setting {key}; {hint}")
    if value.strip():
        return _set_value(session, key, value.strip())
    _, kind, default, meaning = known[key]
    now = _format_setting(key, _find_value(values, key))
    return CommandReply(f"  {key} = {now}\n  {kind}; {default} by default\n  {meaning}")


def _find_value(values: Any, key: str) -> Any:
    for part in key.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def _format_setting(key: str, value: Any) -> str:
    if key == "env" and isinstance(value, dict):  # its values may be secrets
        return ", ".join(value) or "{}"
    return to_one_line(json.dumps(value, ensure_ascii=False), 200)


def _describe_config(session: Session, known: dict[str, Any], values: Any) -> Iterator[str]:
    changed = {
        key: value
        for key, (_, _, default, _) in known.items()
        if (value := _find_value(values, key)) != json.loads(default) and value not in ([], {})
    }
    for path in session.at.loaded.files_read:
        yield f"  read: {path}"
    yield from (f"  {key} = {_format_setting(key, value)}" for key, value in changed.items())
    if not changed:
        yield "  every setting is as usual"
    yield "  /config KEY explains a setting, /config KEY VALUE sets it in your own settings"


def _set_value(session: Session, key: str, text: str) -> CommandReply:
    """Write one value into the user's own settings file, checked first."""
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    path = save_user_settings(session.environment.home, {key: value})
    return CommandReply(
        f"  {key} = {_format_setting(key, value)}, in {path}; it counts from the next start"
    )


# --- /status --------------------------------------------------------------------------------------------


def run_status(session: Session, rest: str) -> CommandOutcome:
    """Everything about this session that a bug report should have; no keys."""
    if rest:
        raise Mistake("/status takes nothing behind it")
    access, places, at = session.at.access, session.places, session.at
    pressure = session.turn.pressure()
    address = access.openai_base_url if session.model.name.startswith("openai:") else None
    address = access.anthropic_base_url if session.model.name.startswith("claude") else address
    rows = {
        "version": __version__,
        "session": f"{session.id} ({format_count(len(session.view), 'message')} in view)",
        "transcript": str(session.path),
        "model": f"{session.model.name}{f' at {parse_host(address)}' if address else ''}",
        "window": f"{format_percent(pressure.share)} of {format_tokens(pressure.window)} tokens",
        "project": f"{places.root} ({'trusted' if at.trusted else 'not trusted'})",
        "folder": str(session.tools.workspace.cwd),
        "mode": session.tools.permissions.mode,
        "memory": f"off: {at.memory.off}" if at.memory.off else str(at.memory.folder),
        "policy": session.settings.policy,
        "settings": ", ".join(map(str, at.loaded.files_read)) or "no file",
    }
    rows |= {"ignored": ", ".join(at.loaded.ignored)} if at.loaded.ignored else {}
    width = max(map(len, rows))
    return CommandReply(
        "\n".join(f"  {name:<{width}}  {make_printable(text)}" for name, text in rows.items())
    )
