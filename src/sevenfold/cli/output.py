"""Output of the commands: results to stdout, messages and events for people to stderr."""

from __future__ import annotations

import datetime
import re
import sys
import unicodedata
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, Literal, TypeAlias

import msgspec

from sevenfold.cli.options import SharedOptions
from sevenfold.cli.themes import DEFAULT_THEME, THEMES
from sevenfold.core.events import (
    Acted,
    AgentEnded,
    AgentStarted,
    CacheBroke,
    Cleared,
    Compacted,
    Denied,
    Event,
    Failed,
    HookRan,
    Mail,
    Notice,
    Progress,
    ReadAgain,
    Remembered,
    Retrying,
    Sending,
    Started,
    Stored,
    Surfaced,
    ToolStarted,
)
from sevenfold.core.messages import Image, ToolResult, ToolUse

# A tool call is shown with the first of these arguments that it has
_MAIN_ARGUMENT: Final = ("file_path", "path", "command", "pattern", "query", "url", "name")
# The arguments of Agent and SendMessage that `describe_agent_call` says
AGENT_WORDS: Final = frozenset(
    {
        *("description", "subagent_type", "name", "teammate", "isolation", "run_in_background"),
        *("to", "summary"),
    }
)
_MOVES: Final = frozenset({"Cc", "Cf", "Zl", "Zp", "Cs"})  # They move the cursor, turn text or hide it


def make_printable(text: str) -> str:
    """The text without characters that control a terminal; line breaks and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in _MOVES else "�" for c in text)


def to_one_line(text: str, most: int = 100) -> str:
    line = make_printable(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def fit_line(line: str, columns: int) -> str:
    """Cut a line to the width of a terminal; some characters take two columns."""
    from rich.cells import cell_len

    if cell_len(line) <= columns:
        return line
    line = line[:columns]
    while line and cell_len(line) >= columns:
        line = line[:-1]
    return f"{line}…"


def break_line(line: str, columns: int) -> Iterator[str]:
    """The line in pieces that fit, broken behind a blank where there is one; joined they are the line."""
    from rich.cells import cell_len

    def measure(text: str) -> int:
        return len(text) if text.isascii() else cell_len(text)

    start, used, blank = 0, 0, 0
    for at, char in enumerate(line):
        used += measure(char)
        while used > columns and at > start:
            end = blank if blank > start else at
            yield line[start:end]
            start, used = end, measure(line[end : at + 1])
        if char == " ":
            blank = at + 1
    yield line[start:]


def wrap_text(text: str, columns: int, indent: str = "") -> str:
    """Break long lines at words; what follows a break is indented like its line, and by `indent`."""
    lines: list[str] = []
    for line in text.split("\n"):
        if len(line) <= columns // 2:  # it fits, also if all of its characters are wide
            lines.append(line)
            continue
        before = (line[: len(line) - len(line.lstrip())] + indent)[: columns // 2]
        first, *_ = break_line(line, columns)
        lines.append(first.rstrip())
        lines += [
            before + piece.rstrip()
            for piece in break_line(line[len(first) :], columns - len(before))
            if piece
        ]
    return "\n".join(lines)


def wrap_line(line: str) -> str:
    """A line broken at words for the width of the terminal; what is piped on stays one line."""
    return wrap_text(line, get_columns() - 1, "      ") if sys.stdout.isatty() else line


def get_columns() -> int:
    """The width of the terminal, at least 20."""
    import shutil

    return max(20, shutil.get_terminal_size().columns)


def format_count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def format_tokens(number: int) -> str:
    """12345 -> 12.3k"""
    if number < 1_000:
        return str(number)
    if number < 999_950:
        short = f"{number / 1_000:.1f}".removesuffix(".0")
        return f"{short}k"
    short = f"{number / 1_000_000:.2f}".rstrip("0").removesuffix(".")
    return f"{short}M"


def format_bytes(number: int) -> str:
    """12345 -> 12.3 kB"""
    for size, unit in ((1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"


def format_percent(share: float) -> str:
    if 0 < share < 0.01:
        return "<1%"
    return f"{share:.0%}"


def format_money(amount: float | None, currency: str = "USD") -> str:
    if amount is None:
        return "no price known"
    sign = "$" if currency == "USD" else f"{currency} "
    return f"{sign}{amount:.2f}" if amount >= 1 or amount == 0 else f"{sign}{amount:.4f}"


def format_duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"


def format_elapsed(seconds: float) -> str:
    """7300 -> `2 h ago`"""
    for size, unit in ((86_400, "day"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            number = int(seconds // size)
            return f"{format_count(number, unit) if unit == 'day' else f'{number} {unit}'} ago"
    return "just now"


def format_time(at: float) -> str:
    return datetime.datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")


def format_call(use: ToolUse, most: int = 100) -> str:
    """`Read src/a.py`; a call that starts or tells an agent is a sentence."""
    if sentence := describe_agent_call(use):
        return to_one_line(sentence, most)
    for name in _MAIN_ARGUMENT:
        if isinstance(value := use.input.get(name), str) and value:
            return to_one_line(f"{use.name} {value}", most)
    rest = ", ".join(f"{name}: {format_argument(value)}" for name, value in use.input.items())
    return to_one_line(f"{use.name} {rest}", most)


def format_argument(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode("utf-8")


def describe_agent_call(use: ToolUse) -> str:
    """The sentence for a call of Agent or SendMessage; empty for other tools."""
    args = {name: value for name, value in use.input.items() if isinstance(value, str)}
    if use.name == "Agent":
        kind, name = args.get("subagent_type") or "general-purpose", args.get("name", "")
        article = "the" if name else "an" if kind[:1].lower() in "aeiou" else "a"
        member = "teammate" if use.input.get("teammate") else "agent"
        where = " in a work tree of its own" if args.get("isolation") else ""
        where += " in the background" if use.input.get("run_in_background") else ""
        who = " ".join(filter(None, (article, kind, member, name)))
        return f"Start {who}{where}: {args.get('description') or args.get('prompt', '')}"
    if use.name == "SendMessage":
        return f"Tell {args.get('to', '')}: {args.get('summary') or args.get('message', '')}"
    return ""


def format_outcome(result: ToolResult) -> str:
    """The result of a tool call in short: `120 lines`, or the error."""
    text = result.text.strip()
    if result.is_error:
        return f"failed: {to_one_line(text, 80)}"
    if not isinstance(result.content, str) and any(isinstance(b, Image) for b in result.content):
        return "an image"
    lines = text.count("\n") + 1 if text else 0
    if lines <= 1:
        return to_one_line(text, 60) or "nothing"
    return format_count(lines, "line")


def format_work_name(name: str) -> str:
    """The label of background work in plain words: LateExtraction is late extraction."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def write_json(value: Any, *, indent: int = 0) -> None:
    """Print one JSON document on a line of its own, in UTF-8 whatever the terminal's encoding."""
    try:
        data = msgspec.json.encode(value, enc_hook=str)
    except UnicodeEncodeError:  # the name of a file need not be text
        data = msgspec.json.encode(_replace_half_characters(msgspec.to_builtins(value, enc_hook=str)))
    if indent:
        data = msgspec.json.format(data, indent=indent)
    sys.stdout.flush()
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def _replace_half_characters(value: Any) -> Any:
    """The same value without lone surrogates, which JSON cannot hold."""
    match value:
        case str():
            return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        case dict():
            return {
                _replace_half_characters(key): _replace_half_characters(inner)
                for key, inner in value.items()
            }
        case list() | tuple():
            return [_replace_half_characters(inner) for inner in value]
        case _:
            return value


def print_result(shared: SharedOptions, text: str, value: Any) -> None:
    """Print the result of a command: text for people, or `value` with --json."""
    if shared.json:
        write_json(value, indent=2 if sys.stdout.isatty() else 0)
    elif text:
        print(make_printable(text), flush=True)


def print_message(shared: SharedOptions, text: str) -> None:
    """Print a message for people, unless --quiet."""
    if not shared.quiet:
        print_warning(text)


def print_warning(text: str) -> None:
    """Print a message for people, also with --quiet."""
    print(f"sevenfold: {make_printable(text)}", file=sys.stderr, flush=True)


def ask_yes_or_no(question: str, *, default: bool = False) -> bool:
    """Ask on stderr, read one line; an empty line is the default."""
    print(question, end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip().lower()
    return answer in ("y", "yes") or (default and not answer)


WORTH_SAYING: Final = 0.01  # A rebuilt cache that costs more, in the price table's currency, is announced
BY_HAND: Final = ("manual", "from", "up_to")  # Triggers of compactions that their command reports
TELL_THEMSELVES: Final = ("digest", "notes")  # Compactions that emit a notice of their own
Level: TypeAlias = Literal["progress", "info", "warning"]


class StatusLine(msgspec.Struct, frozen=True):
    """A line on stderr. `progress` is for terminals only; `warning` is printed also with --quiet."""

    text: str
    level: Level = "info"


class EventNarrator:
    """Describes events in lines; it keeps the running tool calls, to describe a result with its call."""

    def __init__(self, currency: str = "USD", *, chat: bool = False) -> None:
        """`chat`: hints name slash commands, not shell commands."""
        self._undo_command = "/memory undo" if chat else "sevenfold memory undo"
        self.running: dict[str, ToolUse] = {}
        self._denied: set[str] = set()
        self._announced: dict[str, str] = {}
        self.currency = currency

    def describe_event(self, event: Event) -> list[StatusLine]:
        match event:
            case ToolStarted(use):
                self.running[use.id] = use
            case Denied(use, reason):
                self._denied.add(use.id)
                return [
                    StatusLine(f"✗ {format_call(use)} · not allowed: {to_one_line(reason, 400)}", "warning")
                ]
            case Acted():
                return self._describe_results(event)
            case Sending() | CacheBroke():
                return self._describe_cache(event)
            case Remembered(name, _, action, _, by) if by not in ("user", "extraction"):
                undo = f"({self._undo_command} takes it back)"
                return [StatusLine(f"memory {action}: {to_one_line(name, 100)} {undo}")]
        line = _describe_event(event)
        return [line] if line else []

    def _describe_results(self, event: Acted) -> list[StatusLine]:
        lines = []
        for result in event.results:
            use = self.running.pop(result.tool_use_id, None)
            if result.tool_use_id in self._denied:
                self._denied.discard(result.tool_use_id)
                continue
            what = format_call(use) if use else "a tool"
            lines.append(StatusLine(f"→ {what} · {format_outcome(result)}", "progress"))
        return lines

    def _describe_cache(self, event: Sending | CacheBroke) -> list[StatusLine]:
        price = format_money(event.cost, self.currency)
        if isinstance(event, Sending):
            self._announced.pop(event.source, None)
            if event.cost <= WORTH_SAYING:
                return []
            self._announced[event.source] = event.why
            return [StatusLine(f"the cache will be rebuilt: {event.why}, about {price}")]
        announced = self._announced.pop(event.source, None) == event.why
        if event.expected or announced or event.cost <= WORTH_SAYING:
            return []
        lost = format_tokens(max(0, event.before - event.after))
        return [StatusLine(f"the cache broke: {event.why}; {lost} tokens are paid for again, {price}")]


def _describe_event(event: Event) -> StatusLine | None:
    match event:
        case Started(session, _, "resume", messages):
            return StatusLine(f"resumed {session}: {format_count(messages, 'message')}", "progress")
        case Stored(_, tool, path, characters):
            return StatusLine(f"{tool} gave {characters:,} characters, kept in {path}", "progress")
        case Cleared(why=why):
            return StatusLine(why, "progress")
        case Compacted() if event.trigger not in BY_HAND and event.by not in TELL_THEMSELVES:
            sizes = f"{format_tokens(event.tokens_before)} → {format_tokens(event.tokens_after)} tokens"
            score = "" if event.fidelity is None else f", fidelity {format_percent(event.fidelity)}"
            why = ", because it pays (compaction.bySize turns it off)"
            why = why if event.trigger == "price" else ""
            return StatusLine(f"the older part was compacted ({event.by}): {sizes}{score}{why}")
        case ReadAgain(_, what):
            return StatusLine(f"asked for again after it was cleared: {to_one_line(what, 120)}", "progress")
        case Notice(text, level):
            return StatusLine(text, "warning" if level != "info" else "info")
        case Failed(by, cause) if by != "dream":
            return StatusLine(f"{by} failed and was passed over: {to_one_line(cause, 200)}", "warning")
        case Retrying(cause, attempt, wait):
            again = f"trying again in {format_duration(wait)} (attempt {attempt + 1})"
            return StatusLine(f"{to_one_line(_strip_advice(cause), 160)}; {again}", "warning")
        case HookRan():
            return _describe_hook(event)
        case _:
            return _describe_memory(event)


def _describe_hook(event: HookRan) -> StatusLine:
    text = f"hook {event.hook} ({to_one_line(event.command, 40)}): {event.outcome}"
    if event.outcome != "blocked":  # a notice has its message
        return StatusLine(text, "progress")
    return StatusLine(f"{text}: {to_one_line(event.message, 120)}" if event.message else text, "warning")


def _describe_memory(event: Event) -> StatusLine | None:
    match event:
        case Surfaced(names):
            return StatusLine(f"recalled: {to_one_line(', '.join(names), 200)}", "progress")
        case Progress("dream", said, True):
            return StatusLine(to_one_line(said, 300))
        case Failed("dream", cause):
            return StatusLine(f"the dream failed: {to_one_line(cause, 500)}", "warning")
        case _:
            return _describe_agents(event)


def _describe_agents(event: Event) -> StatusLine | None:
    match event:
        case AgentStarted(_, name, kind, description, background):
            where = " in the background" if background else ""
            about = f": {to_one_line(description, 100)}" if description else ""
            return StatusLine(f"agent {name} ({kind}) begins{where}{about}", "progress")
        case AgentEnded(_, name, _, status, _, steps, usage):
            did = f"{format_count(steps, 'request')}, {format_tokens(usage.total)} tokens"
            return StatusLine(
                f"agent {name} is {status}: {did}", "info" if status != "idle" else "progress"
            )
        case Mail(sender, summary):
            return StatusLine(f"a message from {to_one_line(sender, 60)}: {to_one_line(summary, 200)}")
        case _:
            return None


def _strip_advice(cause: str) -> str:
    """The cause without its last part, the advice: we are following it already."""
    happened, _, advice = cause.rpartition("; ")
    return happened or advice


class SideOutput:
    """Prints status lines on stderr."""

    def __init__(self, *, quiet: bool = False, color: bool = True, theme: str = DEFAULT_THEME) -> None:
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._styles = THEMES[theme].status if color and self._terminal else {}

    def is_shown(self, line: StatusLine) -> bool:
        if line.level == "warning":
            return True
        return not self._quiet and (self._terminal or line.level != "progress")

    def say(self, line: StatusLine) -> None:
        if not self.is_shown(line):
            return
        text = make_printable(line.text)
        style = self._styles.get(line.level)
        if self._terminal:
            text = wrap_text(text, get_columns() - 1, "  ")
        styled = f"{style}{text}\x1b[0m" if style else text
        print(styled if self._terminal else f"sevenfold: {text}", file=sys.stderr, flush=True)


class EventPrinter:
    """Prints the events of a session that is shown nowhere else."""

    def __init__(self, aside: SideOutput, currency: str = "USD") -> None:
        self._aside, self._narrator = aside, EventNarrator(currency)

    def __call__(self, event: Event) -> None:
        for line in self._narrator.describe_event(event):
            self._aside.say(line)


ReplyKind: TypeAlias = Literal["command", "declined", "interrupted"]


class CommandReply(msgspec.Struct, frozen=True):
    """An answer, and the chat goes on."""

    text: str
    how: ReplyKind = "command"  # `declined`: it did not happen, and the reason has been printed already
    draft: str = ""  # Text for the next prompt, to be edited and sent again


class ExitChat(msgspec.Struct, frozen=True):
    """The chat is over."""


class OpenSession(msgspec.Struct, frozen=True):
    """Go on with another session, or with a new one."""

    resume: str | None = None


class SlowCommand(msgspec.Struct, frozen=True):
    """The command takes a while: the chat shows that and can stop it."""

    what: str
    work: Callable[[], Awaitable[CommandReply]]


class CommandChoice(msgspec.Struct, frozen=True):
    """The user chooses one of several commands. Without a terminal only `text` is printed."""

    text: str
    question: str
    choices: dict[str, str]  # The command line to run, by answer


class MenuRow(msgspec.Struct, frozen=True):
    """One row of a menu, and the command line it stands for."""

    label: str
    line: str
    beside: str = ""  # Shown behind the label, which is cut before it
    about: str = ""  # Shown below the label


class CommandMenu(msgspec.Struct, frozen=True):
    """The user picks a row, which is a command. Without a terminal only `text` is printed."""

    text: str
    title: str
    rows: tuple[MenuRow, ...]
    note: str = ""  # Shown below the rows


class SendPrompt(msgspec.Struct, frozen=True):
    """The command is a prompt of ours for the model: a turn is taken with it."""

    text: str


CommandOutcome: TypeAlias = (
    CommandReply | ExitChat | OpenSession | SlowCommand | CommandChoice | CommandMenu | SendPrompt
)


def is_command(line: str) -> bool:
    """True for a slash and a word; a path has another slash in it and is a message."""
    word = line.split(maxsplit=1)[0]
    return word.startswith("/") and "/" not in word[1:]
