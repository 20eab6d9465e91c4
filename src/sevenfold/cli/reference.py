"""The page of the docs about the commands, written from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import typer

from sevenfold.cli.main import GROUPS, app

_HEAD: Final = """\
# Commands

Written by `sevenfold.cli.reference.cli_reference()`; a test holds it to the code.

`sevenfold` without a command is `sevenfold chat`. Results go to stdout, messages for people to stderr,
progress only to a terminal.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed: the run broke, and nothing is lost |
| 2 | wrong usage: what was asked cannot be done as asked |
| 3 | the run was refused: by a hook, by missing trust, or by a guard |
| 130 | interrupted |

A tool that a permission refuses does not end the run: the model is told why, and what it makes of it is
part of the answer. Such a run ends with 0.

An error is one sentence on stderr; with `--json` there is also `{"error": KIND, "reason": SENTENCE}` on
stdout.

## Options of every command

They may stand before the command, too.
"""

_CHAT: Final = """\
With `-p`, or when something is piped in, one question is asked and the answer printed. What is piped in is
added to the prompt in a `<stdin>` block; up to 600,000 bytes of text.

`--output-format json` (or `--json`) prints one object:
`{"session", "result", "is_error", "stop", "steps", "usage", "cost", "cache_hit", "memories": [],
"events": […]}`, with `error` and `reason` when it failed. `stream-json` prints one event a line, each with
its name under `event`; the last line is the object without its events, named `Result`.

A prompt such as `-p '/compact keep the schema'` runs a command of the chat, on the session that `--resume`
or `--continue` names, and its answer is the result; `stop` is `command` then, or `declined` (exit code 1)
when what was asked for did not happen. A command that cannot be done as asked, such as `/compact` on a
new session, is an error like any other: `stop` is `failed`, and the exit code 2. Commands that ask no
model need no key.

At a terminal:

| | |
|---|---|
"""

_KEYS: Final = """\
| Enter | sends |
| Esc, then Enter | begins a new line |
| Esc | on an empty line, or while a reply is written: brings back your last words to edit |
| Ctrl-C | stops the turn or the compaction; twice within two seconds leaves |
| Ctrl-D | leaves |
"""


def cli_reference() -> str:
    """Every command and option; each is described where it is defined."""
    command: Any = typer.main.get_command(app)
    chat = command.commands["chat"]
    shared = [option for option in chat.params if _is_shared(option)]
    parts = [_HEAD, _options(shared)]
    for path, one in _commands(command, ()):
        parts += [f"\n## sevenfold {' '.join(path)}\n", f"```\n{_usage(path, one)}\n```\n"]
        parts.append(f"{one.help}\n")
        own = [option for option in one.params if not _is_shared(option)]
        parts.append(_options(own))
        if path == ("chat",):
            parts.append(_in_chat())
    return "\n".join(part for part in parts if part).replace("\n\n\n", "\n\n")


def _commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


def _usage(path: tuple[str, ...], command: Any) -> str:
    words = ["sevenfold", *path]
    if len(path) > 1 and GROUPS.get(" ".join(path[:-1])) == path[-1]:
        words[-1] = f"[{path[-1]}]"
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    words += [_metavar(a) if a.required else f"[{_metavar(a)}]" for a in arguments]
    return " ".join([*words, "[OPTIONS]"])


def _metavar(param: Any) -> str:
    return str(param.metavar or param.name.upper())


def _is_shared(param: Any) -> bool:
    return param.name in ("json", "home", "project", "quiet", "no_color")


def _options(params: list[Any]) -> str:
    if not params:
        return ""
    rows = [
        f"| `{_written(param)}` | {(param.help or '').replace('|', chr(92) + '|')} |"
        for param in params
    ]
    return "\n".join(["| option | |", "|---|---|", *rows]) + "\n"


def _written(param: Any) -> str:
    if param.param_type_name == "argument":
        return _metavar(param)
    names = ", ".join(sorted(param.opts, key=len))
    if param.is_flag:
        return names
    return f"{names} {_metavar(param)}".replace("|", r"\|")


def _in_chat() -> str:
    from sevenfold.cli.commands import COMMANDS

    rows = [
        f"| `{f'{name} {argument}'.strip().replace('|', chr(92) + '|')}` | {about} |"
        for name, (_, argument, about) in COMMANDS.items()
    ]
    return f"{_CHAT}{chr(10).join(rows)}\n{_KEYS}"
