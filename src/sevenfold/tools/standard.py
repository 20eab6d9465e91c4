"""The six tools that every session has, in the order in which the model sees them."""

from __future__ import annotations

from sevenfold.protocols import Tool
from sevenfold.tools.bash import Bash
from sevenfold.tools.editing import Edit, Write
from sevenfold.tools.reading import Read
from sevenfold.tools.searching import Glob, Grep
from sevenfold.tools.workspace import Workspace


def standard_tools(workspace: Workspace) -> list[Tool]:
    """Read, Write, Edit, Bash, Grep and Glob over one workspace."""
    return [
        Read(workspace),
        Write(workspace),
        Edit(workspace),
        Bash(workspace),
        Grep(workspace),
        Glob(workspace),
    ]
