"""A machine, a user and a project for the tests of instruction files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sevenfold.memory.instructions.loader import InstructionFiles
from sevenfold.memory.instructions.reader import Instructions, TouchedInstructions
from sevenfold.tools.workspace import is_secret_file


class Place:
    """A machine with a user, a home folder and a project."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.root = top / "work" / "project"
        self.home = top / "user" / ".sevenfold"
        self.user_home = top / "user"
        self.managed = top / "etc"
        for folder in (self.root, self.home, self.managed):
            folder.mkdir(parents=True)

    def write(self, name: str, text: str | bytes = "", top: Path | None = None) -> Path:
        path = (top or self.root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def files(self, cwd: str = "", **more: Any) -> InstructionFiles:
        fields: dict[str, Any] = {"trusted": False, "forbidden": is_secret_file, **more}
        return InstructionFiles(
            self.root,
            self.root / cwd,
            home=self.home,
            managed=self.managed,
            user_home=self.user_home,
            **fields,
        )

    def load(self, cwd: str = "", **more: Any) -> Instructions:
        return self.files(cwd, **more).load()


def texts(found: Instructions | TouchedInstructions) -> list[str]:
    files = found.always if isinstance(found, Instructions) else found.instructions
    return [one.text for one in files]
