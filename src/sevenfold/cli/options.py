"""The options of the commands, each written once, and the five that every command has."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec

import msgspec
from typer import Argument, Option

from sevenfold.cli.shell_completion import complete_memory, complete_model, complete_session

P = ParamSpec("P")
PLAIN: Final[dict[str, Any]] = {  # Arguments of every `typer.Typer`
    "rich_markup_mode": None,  # help is plain text: drawing it would take longer than all the rest
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


class SharedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that every command has: places, and the form of the output."""

    json: bool = False
    home: Path | None = None
    project: Path = Path()
    quiet: bool = False
    no_color: bool = False
    bare: bool = False  # Without memory; only `chat` has this option


JsonFlag = Annotated[bool, Option("--json", help="One JSON document on stdout, and nothing else.")]
HomeDir = Annotated[
    Path | None,
    Option(
        "--home", metavar="DIR", help="Where everything is kept, instead of SEVENFOLD_HOME or ~/.sevenfold."
    ),
]
ProjectDir = Annotated[
    Path, Option("--project", metavar="DIR", help="The project; where you are without it.")
]
Quiet = Annotated[bool, Option("--quiet", "-q", help="No messages apart from warnings and errors.")]
NoColor = Annotated[bool, Option("--no-color", help="Plain text: no colours, no drawing.")]

_SHARED: Final[dict[str, tuple[Any, Any]]] = {
    "json": (JsonFlag, False),
    "home": (HomeDir, None),
    "project": (ProjectDir, Path()),
    "quiet": (Quiet, False),
    "no_color": (NoColor, False),
}
FLAGS: Final = frozenset({"--json", "-q", "--quiet", "--no-color"})
WITH_VALUE: Final = frozenset({"--home", "--project"})


def add_shared_options(function: Callable[Concatenate[SharedOptions, P], int]) -> Callable[..., int]:
    """Add the common options to a command; the function gets them as one value."""
    own = inspect.signature(function, eval_str=True)
    _first, *rest = own.parameters.values()
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _SHARED.items()
    ]

    @functools.wraps(function)
    def command(**given: Any) -> int:
        values = {name: given.pop(name) for name in _SHARED}
        values["project"] = values["project"].expanduser()
        return function(SharedOptions(**values), **given)  # type: ignore[call-arg]

    named = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in rest]
    command.__signature__ = own.replace(parameters=[*named, *more])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in (*named, *more)}
    return command


class ReplyFormat(StrEnum):
    text = "text"
    json = "json"
    stream_json = "stream-json"


class PermissionModeOption(StrEnum):
    default = "default"
    accept_edits = "acceptEdits"
    plan = "plan"
    bypass = "bypassPermissions"
    dont_ask = "dontAsk"


Prompt = Annotated[
    str | None,
    Option(
        "--prompt",
        "-p",
        metavar="PROMPT",
        help="Ask this, or run a command such as /compact, print the answer and leave. What is piped in "
        "is added to it.",
    ),
]
ModelName = Annotated[
    str | None,
    Option(
        "--model",
        metavar="NAME",
        help="'offline', an Anthropic model, 'openai:NAME' or 'local:FILE.gguf'. Without it: the settings, "
        "a Claude model if there is a key, then 'offline'.",
        autocompletion=complete_model,
    ),
]
Resume = Annotated[
    str | None,
    Option(
        "--resume",
        metavar="[ID]",
        help="Go on with this session; the beginning of its id is enough. Without an id: pick one.",
        autocompletion=complete_session,
    ),
]
Continue = Annotated[bool, Option("--continue", help="Go on with the newest session of this project.")]
OutputFormat = Annotated[
    ReplyFormat | None,
    Option(
        "--output-format",
        metavar="text|json|stream-json",
        help="How the answer to a prompt is printed: the text, one JSON object, or one JSON event a line.",
    ),
]
MaxSteps = Annotated[
    int | None,
    Option("--max-steps", min=1, metavar="N", help="How often the model may answer in one turn."),
]
Allow = Annotated[
    list[str] | None,
    Option(
        "--allow",
        metavar="RULE",
        help="What may run without a question, such as 'Bash(ls:*)'. Can be given more than once.",
    ),
]
Deny = Annotated[
    list[str] | None,
    Option("--deny", metavar="RULE", help="What may never run. Can be given more than once."),
]
PermissionMode = Annotated[
    PermissionModeOption | None,
    Option(
        "--permission-mode",
        metavar="MODE",
        help="'default' asks, 'acceptEdits' does not ask about edits, 'plan' only reads, "
        "'dontAsk' refuses what it would have to ask about, 'bypassPermissions' never asks.",
    ),
]


Bare = Annotated[bool, Option("--bare", help="Without memory, for this run: as SEVENFOLD_BARE=1.")]


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True):
    shared: SharedOptions
    prompt: str | None = None
    model: str | None = None
    resume: str | None = None
    newest: bool = False
    format: ReplyFormat | None = None
    max_steps: int | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    mode: PermissionModeOption | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The command line in the shape of a settings file."""
        permissions = {
            "allow": list(self.allow),
            "deny": list(self.deny),
            "mode": self.mode.value if self.mode else None,
        }
        said = {key: value for key, value in permissions.items() if value}
        steps = {"maxSteps": self.max_steps} if self.max_steps else {}
        return {**steps, **({"permissions": said} if said else {})}


class ClockOption(StrEnum):
    real = "real"
    manual = "manual"


SessionId = Annotated[
    str,
    Argument(
        metavar="ID",
        help="The session; the beginning of its id is enough.",
        autocompletion=complete_session,
    ),
]
SessionOption = Annotated[
    str | None,
    Option(
        "--session",
        metavar="ID",
        help="The session; the newest without it.",
        autocompletion=complete_session,
    ),
]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]
Days = Annotated[
    int | None,
    Option("--days", min=1, metavar="N", help="How long to keep things; the settings say it otherwise."),
]
DryRun = Annotated[bool, Option("--dry-run", help="Only list what would be removed.")]
Port = Annotated[int, Option("--port", min=0, max=65535, metavar="N", help="0: one that is free.")]
ScriptFile = Annotated[
    Path | None, Option("--script", metavar="FILE", help="What to answer and what to get wrong.")
]
ServedModel = Annotated[
    str | None, Option("--model", metavar="NAME", help="Serve only this model; any without it.")
]
ServedWindow = Annotated[
    int | None, Option("--window", min=1, metavar="TOKENS", help="The window of every model.")
]
CountsHeaders = Annotated[
    bool, Option("--count-headers", help="Count the version header that a client puts before its prompt.")
]
ClockKind = Annotated[
    ClockOption,
    Option(
        "--clock", metavar="real|manual", help="'manual' stands still until POST /sevenfold/clock moves it."
    ),
]
UpstreamUrl = Annotated[
    str | None,
    Option(
        "--upstream",
        metavar="URL",
        help="The provider, over https; that of the settings without it. Plain http on this machine alone.",
    ),
]
Report = Annotated[bool, Option("--report", help="At the end, the whole receipt instead of one line.")]
WrappedClient = Annotated[
    list[str], Argument(metavar="CLIENT [ARGS]...", help="The command that starts the client.")
]
HttpAddress = Annotated[
    str | None,
    Option(
        "--http",
        metavar="ADDR",
        help="Serve over HTTP at this address of this machine, such as 127.0.0.1:8765, and not on stdin "
        "and stdout.",
    ),
]
ReadOnly = Annotated[bool, Option("--read-only", help="Offer only tools that change nothing.")]
ForPlugin = Annotated[bool, Option("--plugin", help="Also offer the tool that the plugin's hooks call.")]
TrustPath = Annotated[Path | None, Argument(metavar="PATH", help="The folder; the project without it.")]
Revoke = Annotated[bool, Option("--revoke", help="Do not trust it any longer, nor anything in it.")]


class MemoryTypeOption(StrEnum):
    user = "user"
    feedback = "feedback"
    project = "project"
    reference = "reference"


class SelectorOption(StrEnum):
    hybrid = "hybrid"
    model = "model"
    both = "hybrid+model"


RecordedPath = Annotated[Path, Argument(metavar="PATH", help="The transcript of the session.")]
Name = Annotated[
    str,
    Argument(
        metavar="NAME",
        help="The memory: its name, its file, or the beginning of either.",
        autocompletion=complete_memory,
    ),
]
SomeName = Annotated[
    str | None,
    Argument(metavar="NAME", help="One memory; all of them without it.", autocompletion=complete_memory),
]
Revision = Annotated[
    str | None,
    Argument(
        metavar="REV",
        help="Everything that changed since this revision: the beginning of its id, 'last' or "
        "'HEAD~2'. Without it: what the last change changed.",
    ),
]
ToRevision = Annotated[
    str | None,
    Option("--to", metavar="REV", help="Go back to this revision instead of undoing the last change."),
]
WhichKind = Annotated[
    MemoryTypeOption | None,
    Option(
        "--type",
        metavar="user|feedback|project|reference",
        help="'user': who you are; 'feedback': how to work; 'project': what goes on; "
        "'reference': where things are outside the project. Required, unless the text has frontmatter "
        "that says it.",
    ),
]
NewKind = Annotated[
    MemoryTypeOption | None,
    Option("--type", metavar="user|feedback|project|reference", help="Another type."),
]
Slug = Annotated[
    str,
    Option(
        "--name",
        metavar="NAME",
        help="Its name, after which its file is called; a memory of that name gets the new text.",
    ),
]
Description = Annotated[
    str | None,
    Option(
        "--description",
        metavar="TEXT",
        help="One specific line: recall judges by it. Required, unless the text has frontmatter that "
        "says it.",
    ),
]
NewDescription = Annotated[str | None, Option("--description", metavar="TEXT", help="Another description.")]
Body = Annotated[
    str | None, Option("--body", metavar="TEXT", help="The text. Without it: --file, or stdin.")
]
BodyFile = Annotated[
    Path | None, Option("--file", metavar="FILE", help="The text, from a file; '-': stdin.")
]
ExportFolder = Annotated[Path, Argument(metavar="DIR", help="A folder that is new or empty.")]
AsGit = Annotated[bool, Option("--git", help="With the whole history, as a git repository.")]
Team = Annotated[bool, Option("--team", help="Into the memory of the team, where there is one.")]
New = Annotated[
    bool, Option("--new", help="A memory of its own, also where one that is there says the same.")
]
Query = Annotated[list[str], Argument(metavar="QUERY", help="A question, in the words you would use.")]
Words = Annotated[list[str], Argument(metavar="WORDS", help="What to look for.")]
RecallLimit = Annotated[int, Option("--limit", min=1, max=100, metavar="N", help="The most to give back.")]
SearchLimit = Annotated[
    int,
    Option(
        "--limit",
        min=1,
        max=1000,
        metavar="N",
        help="The most memories, and the most places in transcripts.",
    ),
]
HistoryLimit = Annotated[int, Option("--limit", min=1, metavar="N", help="The most revisions to list.")]
WhichSelector = Annotated[
    SelectorOption | None,
    Option(
        "--selector",
        metavar="hybrid|model|hybrid+model",
        help="'hybrid' searches; 'model' lets a model choose from the newest 200; 'hybrid+model' "
        "from the best 20 of the search. Without it: the settings.",
    ),
]
RecallWait = Annotated[
    float | None,
    Option(
        "--wait",
        min=0,
        metavar="SECONDS",
        help="Wait so long for new memories to be found by meaning too; 0 answers by words with what "
        "there is. Without it: a moment, if few memories are new.",
    ),
]
Transcripts = Annotated[
    bool,
    Option("--transcripts", help="Also in what was said in the sessions of this project, newest first."),
]
OfAgent = Annotated[
    str | None,
    Option("--agent", metavar="NAME", help="Of the memory of this kind of agent, not of the project's."),
]
Numbers = Annotated[
    list[int] | None,
    Argument(metavar="N", min=1, help="Their numbers, as 'sevenfold memory quarantine' lists them."),
]
EveryHeldText = Annotated[bool, Option("--all", help="All that is held back.")]
EveryFinding = Annotated[bool, Option("--all", help="A line for each finding, not one for each problem.")]
Number = Annotated[
    int, Argument(metavar="N", min=1, help="Its number, as 'sevenfold memory quarantine' lists it.")
]
