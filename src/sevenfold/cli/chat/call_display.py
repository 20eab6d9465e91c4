"""A tool call as the user sees it before it may run: a command in full, a change to a file as a diff."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Final, Literal, TypeAlias

import msgspec

from sevenfold.cli.output import (
    AGENT_WORDS,
    break_line,
    describe_agent_call,
    format_argument,
    format_count,
    format_duration,
    make_printable,
    to_one_line,
)
from sevenfold.core.messages import ToolUse
from sevenfold.tools.file_tools import preview_change
from sevenfold.tools.permissions import EDITORS, PermissionRule
from sevenfold.tools.shell import find_doubtful_spans, split_compound
from sevenfold.tools.toolbox import PermissionQuestion

LineKind: TypeAlias = Literal["", "added", "removed", "cause", "note"]
CONTEXT: Final = 3  # Unchanged lines shown around a change
_MOST_COMPARED: Final = 1_000  # Changed lines that are compared one by one; more are all shown as new
MOST_WORDS: Final = 200  # Characters of a note: the question must stay on the screen
_INDENT: Final = "    "
_MARK: Final = "  > "  # Before the lines that caused the question


class CallLine(msgspec.Struct, frozen=True):
    """One line on the screen."""

    text: str
    kind: LineKind = ""


class CallText(msgspec.Struct, frozen=True):
    """A call in lines that fit the screen's width: its title, all of it, and notes about it."""

    title: str
    lines: tuple[CallLine, ...]
    notes: tuple[str, ...] = ()


def describe_question(question: PermissionQuestion, columns: int) -> CallText:
    """All that the user decides about. `cause` marks the lines that made us ask."""
    use = question.use
    if use.name == "Bash":
        return _describe_command(question, columns)
    if use.name in EDITORS:
        return _describe_change(question, columns)
    sentence = describe_agent_call(use)
    shown = {name: value for name, value in use.input.items() if not sentence or name not in AGENT_WORDS}
    lines: list[CallLine] = []
    for name, value in shown.items():
        first, *more = make_printable(f"{name}: {format_argument(value)}").split("\n")
        lines += _wrap(first, columns, "  ")
        lines += [piece for line in more for piece in _wrap(line, columns, _INDENT)]
    return CallText(make_printable(sentence or use.name), tuple(lines))


def _wrap(line: str, columns: int, indent: str) -> Iterator[CallLine]:
    """A line in pieces that fit; nothing of it is left out."""
    for piece in break_line(line.replace("\t", "    "), max(10, columns - len(indent))):
        yield CallLine(indent + piece)


# --- commands -------------------------------------------------------------------------------------------


def _describe_command(question: PermissionQuestion, columns: int) -> CallText:
    use, workspace = question.use, question.workspace
    command = use.input["command"]
    spans = find_doubtful_spans(command) or _find_named_spans(command, question.reason)
    lines, at = list[CallLine](), 0
    for line in make_printable(command).split("\n"):
        for piece in break_line(line, max(10, columns - len(_INDENT))):
            asked = any(start < at + len(piece) and at < end for start, end in spans)
            text = piece.replace("\t", " ")
            lines.append(CallLine(f"{_MARK}{text}", "cause") if asked else CallLine(f"{_INDENT}{text}"))
            at += len(piece)
        at += 1
    where = "" if workspace.cwd == workspace.root else f" in {workspace.cwd}"
    notes = []
    if use.input.get("run_in_background"):
        notes.append("it goes on running in the background")
    if timeout := use.input.get("timeout"):
        notes.append(f"it is stopped after {format_duration(timeout / 1000)}")
    if purpose := use.input.get("description"):
        notes.append(f"the model says: {to_one_line(purpose, MOST_WORDS)}")
    return CallText(f"Run this command{where}", tuple(lines), tuple(notes))


def _find_named_spans(command: str, reason: str) -> tuple[tuple[int, int], ...]:
    """The words of a command whose path the reason names."""
    words = re.finditer(r"[^\s'\"|;&<>()]+", command)
    names = ((found.span(), found[0].rstrip("/").rpartition("/")[2]) for found in words)
    return tuple(
        span
        for span, name in names
        if len(name) > 1 and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", reason)
    )


# --- changes to files -----------------------------------------------------------------------------------


def _describe_change(question: PermissionQuestion, columns: int) -> CallText:
    change = preview_change(question.workspace, question.use)
    before, after, notes = change.before or "", change.after, list[str]()
    if "\r\n" in after and (change.before is None or "\r\n" in before):
        before, after = before.replace("\r\n", "\n"), after.replace("\r\n", "\n")
        notes.append("its lines end with CR LF")
    if after and not after.endswith("\n") and question.use.name == "Write":
        notes.append("its last line has no line end")
    if change.problem:
        notes.append(f"as things are it will fail: {to_one_line(change.problem, MOST_WORDS)}")
    compared = compare_lines(_split_lines(before), _split_lines(after))
    counts = [
        f"{format_count(number, 'line')} {kind}"
        for kind in ("added", "removed")
        if (number := sum(line.kind == kind for line in compared))
    ]
    path = make_printable(question.workspace.format_path(change.path))
    verb = "Create" if change.before is None else "Change"
    lines = (piece for line in compared for piece in _format_diff_line(line, columns))
    return CallText(f"{verb} {path}: {', '.join(counts) or 'no line differs'}", tuple(lines), tuple(notes))


def _split_lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if not lines[-1] else lines


class DiffLine(msgspec.Struct, frozen=True):
    """A line of a diff, with its number in the file before or after; number 0: lines are left out here."""

    kind: LineKind
    number: int
    text: str


def compare_lines(before: list[str], after: list[str]) -> list[DiffLine]:
    """The lines removed and added, with some unchanged ones around them."""
    head = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b),
        min(len(before), len(after)),
    )
    rest = min(len(before), len(after)) - head
    tail = next((i for i in range(rest) if before[-1 - i] != after[-1 - i]), rest)
    found: list[DiffLine] = []
    last = 0  # Lines of `after` that are accounted for
    for old, new in _compare_middle(before[head : len(before) - tail], after[head : len(after) - tail]):
        removed, added = range(old.start + head, old.stop + head), range(new.start + head, new.stop + head)
        found += _keep_context(after, last, added.start, begins=not last)
        found += [DiffLine("removed", i + 1, before[i]) for i in removed]
        found += [DiffLine("added", i + 1, after[i]) for i in added]
        last = added.stop
    found += _keep_context(after, last, len(after), ends=True) if found else []
    return found


def _compare_middle(before: list[str], after: list[str]) -> Iterator[tuple[range, range]]:
    """The ranges that differ; of very many lines all of them."""
    if max(len(before), len(after)) > _MOST_COMPARED:
        yield range(len(before)), range(len(after))
        return
    for tag, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            yield range(i, j), range(k, m)


def _keep_context(
    lines: list[str], start: int, stop: int, *, begins: bool = False, ends: bool = False
) -> Iterator[DiffLine]:
    """Of unchanged lines those next to a change."""
    first = range(start, start if begins else min(stop, start + CONTEXT))
    last = range(stop if ends else max(first.stop, stop - CONTEXT), stop)
    yield from (DiffLine("", i + 1, lines[i]) for i in first)
    if last.start > first.stop and not begins and not ends:
        yield DiffLine("note", 0, f"… {format_count(last.start - first.stop, 'unchanged line')}")
    yield from (DiffLine("", i + 1, lines[i]) for i in last)


def _format_diff_line(line: DiffLine, columns: int) -> Iterator[CallLine]:
    sign = {"added": "+", "removed": "-"}.get(line.kind, " ")
    gutter = f"{line.number or '':>5} {sign} "
    for piece in break_line(
        make_printable(line.text).replace("\t", "    "), max(10, columns - len(gutter))
    ):
        yield CallLine(gutter + piece, line.kind)
        gutter = f"      {sign} "


# --- rules in words -------------------------------------------------------------------------------------


def describe_rules(rules: tuple[str, ...], use: ToolUse, *, denies: bool = False) -> str:
    """What rules cover, in words."""
    parsed = [PermissionRule.parse(text) for text in rules]
    if use.name == "Bash":
        return _describe_command_rules([rule.about or "" for rule in parsed], use.input["command"], denies)
    return " and ".join(_describe_rule(rule) for rule in parsed)


def _describe_command_rules(abouts: list[str], command: str, denies: bool) -> str:
    commands, parts = [re.sub(r"\\(.)", r"\1", about) for about in abouts], split_compound(command)
    if commands in ([command.strip()], [*(parts or ())]) and len(commands) == 1:
        if parts is None and denies:
            program = to_one_line(command.split()[0], 40)
            return f"this very command, and others with {program} that cannot be taken apart with certainty"
        return (
            "this very command, also as a part of another"
            if parts and len(parts) == 1
            else "this very command"
        )
    if len(listed := ", ".join(to_one_line(one, len(one)) for one in commands)) > MOST_WORDS:
        return f"exactly {format_count(len(commands), 'command')} in it, as marked above"
    return f"exactly {'this command' if len(commands) == 1 else 'these commands'}: {listed}"


def _describe_rule(rule: PermissionRule) -> str:
    about = rule.about or ""
    doing = {"Edit": "changes to", "Read": "reading"}.get(rule.tool)
    if doing is None:
        return f"every use of {rule.tool}"
    if about == "/**":
        but = " but those that other programs act on" if rule.tool == "Edit" else ""
        return f"{doing} any file of the project{but}"
    path = re.sub(r"\\(.)", r"\1", about.removesuffix("/**")).removeprefix("/")
    below = " and everything below it" if about.endswith("/**") else ""
    return f"{doing} {to_one_line(path, MOST_WORDS)}{below}"
