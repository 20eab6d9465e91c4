"""The commands, whose bodies are imported when they run, and the page of the docs about them."""

from __future__ import annotations

import atexit
import gc
import itertools
import sys
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Annotated, Any, Final

import typer
from msgspec.structs import replace
from typer.core import TyperGroup
from typer.models import CommandInfo, TyperInfo

from sevenfold.cli import options as option
from sevenfold.cli.agents import agents
from sevenfold.cli.clients import answer_hook, print_status_line, run_slash_command, set_up_client
from sevenfold.cli.dream import dream
from sevenfold.cli.failures import report_errors
from sevenfold.cli.fleet import fleet
from sevenfold.cli.memory import memory
from sevenfold.cli.options import PLAIN, ChatOptions, ReplyFormat, SharedOptions, add_shared_options
from sevenfold.cli.replay import replay
from sevenfold.cli.team import team
from sevenfold.core.errors import Mistake


class CommandRoot(TyperGroup):
    """The program itself. Options without a command are those of `chat`, also to a shell that completes."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if extra.get("resilient_parsing") and args and args[0].startswith("-"):
            args = [GROUPS[""], *args]
        return super().make_context(info_name, args, parent, **extra)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        found = super().shell_complete(ctx, incomplete)
        chat = self.commands.get(GROUPS[""])
        if chat is not None and incomplete.startswith("-"):
            found += chat.shell_complete(typer.Context(chat, parent=ctx), incomplete)
        return found


app = typer.Typer(
    name="sevenfold",
    help="An agent in your terminal whose memory is plain files. Without a command: chat.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused, 130 interrupted.",
    cls=CommandRoot,
    pretty_exceptions_enable=False,
    **PLAIN,
)
sessions = typer.Typer(
    name="sessions", help="The sessions of this project. Without a command: list.", **PLAIN
)
GROUPS: Final = {  # The default command of each group of commands
    "": "chat",
    "sessions": "list",
    "memory": "list",
    "memory quarantine": "list",
    "dream": "run",
    "agents": "list",
    "team": "status",
    "fleet": "status",
}
OF_THE_ROOT: Final = ("-h", "--help", "--version", "--install-completion", "--show-completion")
COLLECT_AFTER: Final = 100_000
"""New objects after which Python looks for garbage. A start makes nearly as many and keeps most: at
Python's own 700 it looks a hundred times, for a tenth of the time to the first request."""


def main(words: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    gc.set_threshold(COLLECT_AFTER)
    atexit.register(gc.freeze)  # else Python looks through all objects before it ends, for 0.1 s
    given = name_no_session(list(sys.argv[1:] if words is None else words))
    with report_errors(as_json=is_json_requested(given)) as end:
        arranged = arrange_words(given)
        command = typer.main.get_command(_with_one_command(arranged[0]) if given else _choose_app())
        code = command.main(arranged, prog_name="sevenfold", standalone_mode=False)
        end.code = code if isinstance(code, int) else 0
    return end.code


def name_no_session(words: list[str]) -> list[str]:
    """The words with `--resume=` for a `--resume` that no session follows: it opens the picker."""
    if "wrap" in words:  # what follows belongs to the client
        at = words.index("wrap")
        return [*name_no_session(words[:at]), *words[at:]]
    ends = [*words[1:], "-"]
    return [
        "--resume=" if word == "--resume" and after.startswith("-") else word
        for word, after in zip(words, ends, strict=False)
    ]


def _choose_app() -> typer.Typer:
    """The app of a line without words: chat, or all of it for a shell that asks for completions."""
    from sevenfold.settings.environment import is_completing

    return app if is_completing() else _with_one_command(GROUPS[""])


def _with_one_command(name: str) -> typer.Typer:
    """The app with this command alone, or whole: typer reads the signature of every command it is given."""
    part = copy(app)
    part.registered_commands = [c for c in app.registered_commands if _name(c) == name]
    part.registered_groups = [g for g in app.registered_groups if _name(g) == name]
    return part if part.registered_commands or part.registered_groups else app


def _name(command: CommandInfo | TyperInfo) -> str:
    if isinstance(command, TyperInfo) and command.typer_instance:
        return str(command.typer_instance.info.name)
    return str(command.name or getattr(command.callback, "__name__", ""))


def arrange_words(words: Sequence[str], group: str = "") -> list[str]:
    """The words with the command in front; it may be left out or follow the shared options."""
    at = 0
    while at < len(words) and (words[at] in option.FLAGS | option.WITH_VALUE or _has_value(words[at])):
        at += 2 if words[at] in option.WITH_VALUE else 1
    lead, rest = list(words[:at]), list(words[at:])
    if rest[:1] == ["--version"] and not group:
        return [*(["--json"] if "--json" in words else []), "--version"]
    if not rest or (rest[0].startswith("-") and rest[0] not in OF_THE_ROOT):
        return [GROUPS[group], *lead, *rest]
    inner = f"{group} {rest[0]}".strip()
    if inner in GROUPS:
        return [rest[0], *arrange_words([*lead, *rest[1:]], inner)]
    return rest if rest[0].startswith("-") else [rest[0], *lead, *rest[1:]]


def _has_value(word: str) -> bool:
    return any(word.startswith(f"{name}=") for name in option.WITH_VALUE)


def is_json_requested(words: Sequence[str]) -> bool:
    """True if errors have to be JSON too; known before the words are parsed."""
    meant = list(words[: words.index("--")] if "--" in words else words)
    after = [b for a, b in itertools.pairwise(meant) if a == "--output-format"]
    after += [w.partition("=")[2] for w in meant if w.startswith("--output-format=")]
    return "--json" in meant or any(word in ("json", "stream-json") for word in after)


def _print_version(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        from sevenfold import __version__

        if ctx.params.get("as_json"):
            from sevenfold.cli.output import write_json

            write_json({"version": __version__})
        else:
            typer.echo(f"sevenfold {__version__}")
        raise typer.Exit


@app.callback()
def _sevenfold(
    as_json: Annotated[bool, typer.Option("--json", is_eager=True, hidden=True)] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Say which version it is."),
    ] = False,
) -> None:
    """Options that stand before a command; the shared ones may stand there too."""


@app.command()
@add_shared_options
def chat(
    shared: SharedOptions,
    prompt: option.Prompt = None,
    model: option.ModelName = None,
    resume: option.Resume = None,
    newest: option.Continue = False,
    output_format: option.OutputFormat = None,
    max_steps: option.MaxSteps = None,
    allow: option.Allow = None,
    deny: option.Deny = None,
    permission_mode: option.PermissionMode = None,
    bare: option.Bare = False,
) -> int:
    """Talk with the agent. With -p, or when something is piped in, ask once and print the answer."""
    import anyio

    from sevenfold.cli.chat.single_run import ask_once, join_prompt, read_piped_text
    from sevenfold.cli.startup import read_environment

    if resume is not None and newest:
        raise Mistake("--resume and --continue name two sessions; use one of them")
    if shared.json and output_format in (None, ReplyFormat.text):
        output_format = ReplyFormat.json
    shared = replace(shared, bare=bare)
    options = ChatOptions(
        shared=replace(shared, no_color=shared.no_color or read_environment(shared).no_color),
        prompt=prompt,
        model=model,
        resume=resume,
        newest=newest,
        format=output_format or ReplyFormat.text,
        max_steps=max_steps,
        allow=tuple(allow or ()),
        deny=tuple(deny or ()),
        mode=permission_mode,
    )
    asked = join_prompt(prompt, read_piped_text(options))
    if asked is not None and resume == "":
        raise Mistake("--resume without a session lets you pick one in a chat; with a prompt name it")
    if asked is not None:
        return anyio.run(ask_once, options, asked)
    at_terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
    if options.format is not ReplyFormat.text or not sys.stdout.isatty() or not at_terminal:
        raise Mistake("there is nothing to ask: give a prompt with -p, or pipe one in")
    from sevenfold.cli.chat.conversation import run_conversation

    return anyio.run(run_conversation, options)


@sessions.command("list")
@add_shared_options
def list_sessions(shared: SharedOptions) -> int:
    """The sessions of this project, newest first."""
    from sevenfold.cli.commands.sessions import show_list

    return show_list(shared)


@sessions.command("show")
@add_shared_options
def show_session(shared: SharedOptions, session: option.SessionId) -> int:
    """What was said in a session."""
    from sevenfold.cli.commands.sessions import show_session

    return show_session(shared, session)


@sessions.command("rm")
@add_shared_options
def remove_session(shared: SharedOptions, session: option.SessionId, yes: option.Yes = False) -> int:
    """Delete a session: its transcript and everything that belongs to it."""
    from sevenfold.cli.commands.sessions import run_remove

    return run_remove(shared, session, yes)


@sessions.command("clean")
@add_shared_options
def clean_sessions(shared: SharedOptions, days: option.Days = None, dry_run: option.DryRun = False) -> int:
    """Remove sessions and tool results that are too old.

    Results over the quota go too. What a conversation still points to stays, and so do open sessions and
    memory. This also happens by itself, once a day.
    """
    from sevenfold.cli.commands.sessions import run_clean

    return run_clean(shared, days, dry_run)


app.add_typer(sessions)
app.add_typer(memory)
app.add_typer(dream)
app.add_typer(agents)
app.add_typer(team)
app.add_typer(fleet)
app.command()(replay)
app.command("hook")(answer_hook)
app.command("slash")(run_slash_command)
app.command("setup")(set_up_client)
app.command("statusline")(print_status_line)


@app.command()
@add_shared_options
def context(shared: SharedOptions, session: option.SessionOption = None) -> int:
    """What is in the window, by kind and by who put it there."""
    from sevenfold.cli.commands.window import show_window

    return show_window(shared, session)


@app.command()
@add_shared_options
def simulate(
    shared: SharedOptions,
    port: option.Port = 0,
    script: option.ScriptFile = None,
    model: option.ServedModel = None,
    clock: option.ClockKind = option.ClockOption.real,
    window: option.ServedWindow = None,
    counts_headers: option.CountsHeaders = False,
) -> int:
    """A model provider on this machine, with a prompt cache. Prints its address."""
    from sevenfold.cli.commands.simulate import ServedOptions
    from sevenfold.cli.commands.simulate import run_simulator as run

    serves = ServedOptions(script, model, clock is option.ClockOption.manual, window, counts_headers)
    return run(shared, port, serves)


@app.command()
@add_shared_options
def proxy(
    shared: SharedOptions,
    upstream: option.UpstreamUrl = None,
    port: option.Port = 0,
    report: option.Report = False,
) -> int:
    """The layers between any client and its provider. Relays on this machine, shortens, keeps a receipt."""
    from sevenfold.cli.commands.proxy import run_proxy as run

    return run(shared, upstream=upstream, port=port, report=report)


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
@add_shared_options
def wrap(shared: SharedOptions, client: option.WrappedClient, upstream: option.UpstreamUrl = None) -> int:
    """Run claude, codex or any client through a proxy of its own."""
    from sevenfold.cli.commands.proxy import run_wrapped

    return run_wrapped(shared, client, upstream=upstream)


@app.command()
@add_shared_options
def mcp(
    shared: SharedOptions,
    http: option.HttpAddress = None,
    read_only: option.ReadOnly = False,
    plugin: option.ForPlugin = False,
) -> int:
    """Serve the memory of this project to other agents, over MCP."""
    from sevenfold.cli.commands.mcp import run_mcp

    return run_mcp(shared, http=http, read_only=read_only, plugin=plugin)


@app.command()
@add_shared_options
def trust(shared: SharedOptions, path: option.TrustPath = None, revoke: option.Revoke = False) -> int:
    """Trust a folder as it is. Its settings may then bring hooks, permissions and addresses."""
    from sevenfold.cli.startup import run_trust as run

    return run(shared, path, revoke)


@app.command()
@add_shared_options
def doctor(shared: SharedOptions) -> int:
    """What is configured, what is missing, and how to fix it."""
    from sevenfold.cli.commands.doctor import run_doctor as run

    return run(shared)


@app.command()
@add_shared_options
def demo(shared: SharedOptions) -> int:
    """A real session without a key. It has a home that is thrown away, and says what it cost."""
    from sevenfold.cli.commands.demo import run_demo

    return run_demo(shared)


_HEAD: Final = """\
# Commands

Written by `sevenfold.cli.main.cli_reference()`; a test holds it to the code.

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

_SHELLS: Final = """\

`sevenfold --install-completion` makes bash, zsh or fish complete commands, options, sessions, models and
memories; it finds out which shell you use, and says where it wrote. `--show-completion` prints the script.
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
| `@path` | attaches a file, some of its lines (`@path#L10-20`), an image or a folder |
| `!command` | runs in the shell and shows its output, which goes with your next message |
| `#text` | is remembered, and it says where |
| Tab | completes commands and what follows them, and files after `@` |
| Shift-Tab | goes through the modes: ask, accept edits, plan |
| Ctrl-R | searches what you typed before |
| Ctrl-V | attaches the image in the clipboard |
| Enter | sends |
| Esc, then Enter | begins a new line |
| Esc | on an empty line, or while a reply is written: brings back your last words to edit |
| Esc twice | on an empty line: `/rewind`; else clears the line |
| Ctrl-C | stops the turn or the command; twice within two seconds leaves |
| Ctrl-D | leaves |

[Chat](chat.md) says more about each.
"""


def write_cli_reference() -> str:
    """Every command and option; each is described where it is defined."""
    command: Any = typer.main.get_command(app)
    shared = [param for param in command.commands["chat"].params if _is_shared(param)]
    parts = [_HEAD, _format_options(shared), _SHELLS]
    for path, one in _list_commands(command, ()):
        parts += [f"\n## sevenfold {' '.join(path)}\n", f"```\n{_format_usage(path, one)}\n```\n"]
        parts.append(f"{one.help}\n")
        parts.append(_format_options([param for param in one.params if not _is_shared(param)]))
        if path == ("chat",):
            parts.append(_describe_chat_commands())
    return "\n".join(part for part in parts if part).replace("\n\n\n", "\n\n")


def _list_commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _list_commands(command, (*path, name))
        else:
            yield (*path, name), command


def _format_usage(path: tuple[str, ...], command: Any) -> str:
    words = ["sevenfold", *path]
    if len(path) > 1 and GROUPS.get(" ".join(path[:-1])) == path[-1]:
        words[-1] = f"[{path[-1]}]"
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    words += [_format_metavar(a) if a.required else f"[{_format_metavar(a)}]" for a in arguments]
    return " ".join([*words, "[OPTIONS]"])


def _format_metavar(param: Any) -> str:
    return str(param.metavar or param.name.upper())


def _is_shared(param: Any) -> bool:
    return param.name in ("json", "home", "project", "quiet", "no_color")


def _format_options(params: list[Any]) -> str:
    if not params:
        return ""
    rows = [
        f"| `{_format_option(param)}` | {(param.help or '').replace('|', chr(92) + '|')} |"
        for param in params
    ]
    return "\n".join(["| option | |", "|---|---|", *rows]) + "\n"


def _format_option(param: Any) -> str:
    if param.param_type_name == "argument":
        return _format_metavar(param)
    names = ", ".join(sorted(param.opts, key=len))
    if param.is_flag:
        return names
    return f"{names} {_format_metavar(param)}".replace("|", r"\|")


def _describe_chat_commands() -> str:
    from sevenfold.cli.chat.slash import COMMANDS

    rows = [
        f"| `{f'{name} {argument}'.strip().replace('|', chr(92) + '|')}` | {about} |"
        for name, (_, argument, about) in COMMANDS.items()
    ]
    return f"{_CHAT}{chr(10).join(rows)}\n{_KEYS}"
