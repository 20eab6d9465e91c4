"""Questions put to the person at the terminal: may this tool run, is this folder to be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sevenfold.cli.proposals import with_values
from sevenfold.cli.wording import one_line, printable
from sevenfold.messages import ToolUse
from sevenfold.storage.files import make_private_dir, read_if_there, write_atomic
from sevenfold.tools.gate import Answer

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

MOST_SHOWN: Final = 2_000
_ANSWERS: Final[dict[str, Answer]] = {"y": True, "yes": True, "n": False, "no": False}
_ALWAYS: Final[dict[str, Answer]] = {"a": "always", "always": "always"}


def in_full(use: ToolUse) -> str:
    """What a tool is about to do, with nothing left out that matters for a decision."""
    lines = [use.name]
    for name, value in use.input.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode("utf-8")
        text = printable(text)
        if len(text) > MOST_SHOWN:
            text = f"{text[:MOST_SHOWN]}\n… and {len(text) - MOST_SHOWN:,} characters more"
        shown = text if "\n" not in text else "\n    " + text.replace("\n", "\n    ")
        lines.append(f"  {printable(name)}: {shown}")
    return "\n".join(lines)


async def may_run(
    prompts: PromptSession[str], use: ToolUse, reason: str, rules: tuple[str, ...]
) -> Answer:
    """Yes, no, or always in this session. Ctrl-D is no; Ctrl-C is the caller's."""
    print(f"{in_full(use)}\n  asked because: {one_line(reason, 200)}", flush=True)
    answer = await choose(prompts, *question(rules))
    return False if answer is None else answer


def question(rules: tuple[str, ...]) -> tuple[str, dict[str, Answer]]:
    """What is asked and what may be answered; without a rule to add there is no "always"."""
    if not rules:
        return "Run it? [y]es, [n]o: ", _ANSWERS
    added = one_line(", ".join(rules), MOST_SHOWN)
    return f"Run it? [y]es, [n]o, [a]lways in this session ({added}): ", {**_ANSWERS, **_ALWAYS}


async def choose(prompts: PromptSession[str], text: str, answers: dict[str, Any]) -> Any:
    """Ask until one of the answers is given; None at the end of the input."""
    while True:
        try:
            said = await prompts.prompt_async(text, handle_sigint=False)
        except EOFError:
            return None
        if (word := said.strip().lower()) in answers:
            return answers[word]


class AskedOnce:
    """The folders about which it was asked whether to trust them: nobody is asked twice."""

    def __init__(self, home: Path) -> None:
        self._path = home / "trust-asked.json"

    def has(self, root: Path) -> bool:
        return str(root) in self._all()

    def add(self, root: Path) -> None:
        make_private_dir(self._path.parent)
        write_atomic(self._path, msgspec.json.encode(sorted({*self._all(), str(root)})))

    def _all(self) -> list[str]:
        try:
            data = read_if_there(self._path, 10_000_000)
            return msgspec.json.decode(data, type=list[str]) if data else []
        except (msgspec.DecodeError, UnicodeDecodeError):
            return []


async def whether_to_trust(
    prompts: PromptSession[str], root: Path, ignored: tuple[str, ...], tree: Path
) -> bool:
    """Default no, also at the end of the input and after Ctrl-C."""
    listed = "\n".join(f"  {line}" for line in with_values(ignored, tree))
    print(
        f"{root} has settings that could run commands or widen what is allowed:\n{listed}\n"
        "They are ignored unless you trust this folder and everything that is in it.",
        flush=True,
    )
    try:
        return bool(await choose(prompts, "Trust it? [y/N] ", {**_ANSWERS, "": False}))
    except KeyboardInterrupt:
        return False
