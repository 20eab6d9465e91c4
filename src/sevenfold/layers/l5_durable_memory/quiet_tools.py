"""The session's tools for work in the background: the same rules, nobody is asked, nothing is shared.

A fork's reads must not count as reads of the conversation, nor its `cd` move it; and a question that
comes from work nobody sees would only be a riddle. What would have to be asked about is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

from sevenfold.events import Event
from sevenfold.hooks import HookedTools, Hooks
from sevenfold.messages import ToolUse
from sevenfold.protocols import Tools
from sevenfold.tools.gate import Gate
from sevenfold.tools.permissions import Permissions
from sevenfold.tools.standard import standard_tools
from sevenfold.tools.toolbox import Toolbox
from sevenfold.tools.workspace import Workspace

May: TypeAlias = Callable[[ToolUse], Awaitable[str | None]]
"""Whether the rules of the session let a call pass: None, or why not. Nobody is asked."""


def quiet(
    workspace: Workspace, permissions: Permissions, hooks: Hooks | None = None
) -> tuple[Tools, May]:
    """Tools for one fork, and the gate before them. The user's hooks see what they do."""
    own = replace(workspace, seen=dict(workspace.seen))  # what is read from now on is not shared
    own.cwd = workspace.cwd
    gate = Gate(permissions, own)
    toolbox = Toolbox(standard_tools(own), gate, _unheard)
    return (HookedTools(toolbox, hooks) if hooks is not None else toolbox), gate


def _unheard(event: Event) -> None:
    """What a fork is denied is counted by who started it."""
