"""A small project in memory, and a conversation about it with the offline engine."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field

from sevenfold.core.messages import Block, Json, Message, Text, ToolResult, ToolUse, assistant, user
from sevenfold.offline.conversation import OfflineConversation
from sevenfold.offline.reply import EngineRules, make_reply

ALL_TOOLS: dict[str, Json] = {
    name: {"type": "object"} for name in ("Read", "Write", "Edit", "Bash", "Grep", "Glob")
}
CONFIG = '[server]\nhost = "0.0.0.0"\nport = 8080\n\n[db]\nport = 5432\nname = "ledger"\n'


@dataclass
class Project:
    """Answers tool calls from a dictionary of files; commands are scripted."""

    files: dict[str, str] = field(default_factory=lambda: {"config.toml": CONFIG})
    outputs: dict[str, str] = field(default_factory=dict)

    def call(self, use: ToolUse) -> ToolResult:
        try:
            said = getattr(self, f"_{use.name.lower()}")(**use.input)
        except LookupError as error:
            return ToolResult(use.id, str(error.args[0]), True)
        return ToolResult(use.id, said)

    def _read(self, file_path: str, offset: int = 1, limit: int = 2000) -> str:
        lines = self._known(file_path).splitlines()[offset - 1 : offset - 1 + limit]
        return "\n".join(f"{n}\t{line}" for n, line in enumerate(lines, offset))

    def _write(self, file_path: str, content: str) -> str:
        self.files[file_path] = content
        return f"Created {file_path}."

    def _edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> str:
        text = self._known(file_path)
        if old_string not in text:
            raise LookupError(f"{file_path} does not hold {old_string}")
        self.files[file_path] = text.replace(old_string, new_string, -1 if replace_all else 1)
        return f"Edited {file_path}."

    def _bash(self, command: str, run_in_background: bool = False) -> str:
        if command not in self.outputs:
            raise LookupError(f"Exit code 127\n{command}: command not found")
        return self.outputs[command]

    def _grep(self, pattern: str, path: str = "", glob: str = "*", output_mode: str = "") -> str:
        found = [
            f"{name}\n" + "\n".join(lines)
            for name, text in self.files.items()
            if name.startswith(path) and fnmatch.fnmatch(name, glob) and (lines := _matching(pattern, text))
        ]
        return "\n\n".join(found) or "No matches in the project."

    def _glob(self, pattern: str, path: str = "") -> str:
        wanted = pattern.removeprefix("**/")
        return "\n".join(name for name in self.files if fnmatch.fnmatch(name, wanted))

    def _known(self, name: str) -> str:
        if name not in self.files:
            raise LookupError(f"{name} does not exist")
        return self.files[name]


def _matching(pattern: str, text: str) -> list[str]:
    lines = enumerate(text.splitlines(), 1)
    return [f"{n}: {line}" for n, line in lines if re.search(pattern, line)]


@dataclass
class Talk:
    """A conversation: what is asked is answered, with as many tool rounds as it takes."""

    project: Project = field(default_factory=Project)
    tools: dict[str, Json] = field(default_factory=lambda: dict(ALL_TOOLS))
    messages: list[Message] = field(default_factory=list)
    rules: EngineRules = field(default_factory=EngineRules)
    system: str = ""

    def conversation(self) -> OfflineConversation:
        return OfflineConversation(tuple(self.messages), self.tools, self.system)

    def step(self) -> tuple[Block, ...]:
        """One reply and, if it calls tools, their results."""
        blocks = make_reply(self.conversation(), self.rules)
        self.messages.append(assistant(*blocks))
        uses = self.messages[-1].tool_uses
        if uses:
            self.messages.append(Message("user", tuple(self.project.call(u) for u in uses)))
        return blocks

    def ask(self, text: str, most: int = 50) -> str:
        """What is said in the end."""
        self.messages.append(user(text))
        for _ in range(most):
            blocks = self.step()
            if not any(isinstance(b, ToolUse) for b in blocks):
                return "".join(b.text for b in blocks if isinstance(b, Text))
        raise AssertionError(f"still calling tools after {most} replies")

    @property
    def calls(self) -> list[tuple[str, Json]]:
        return [(u.name, u.input) for m in self.messages for u in m.tool_uses]

    @property
    def rounds(self) -> list[list[str]]:
        """The names of the tools that were called together."""
        return [[u.name for u in m.tool_uses] for m in self.messages if m.tool_uses]


def first_calls(text: str, **tools: Json) -> list[tuple[str, Json]]:
    """The calls that the engine makes at once when this is the first thing it hears."""
    blocks = make_reply(OfflineConversation((user(text),), tools or ALL_TOOLS))
    return [(b.name, b.input) for b in blocks if isinstance(b, ToolUse)]


def said(*messages: Message, **tools: Json) -> str:
    """What the engine says to these messages."""
    blocks = make_reply(OfflineConversation(messages, tools or ALL_TOOLS))
    return "".join(b.text for b in blocks if isinstance(b, Text))
