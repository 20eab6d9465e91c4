"""The gate that every tool call passes: rules first, then whoever can be asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

import anyio
import msgspec

from sevenfold.messages import ToolUse
from sevenfold.tools.permissions import Decision, Permissions
from sevenfold.tools.workspace import Workspace

Answer: TypeAlias = bool | Literal["always"]
Ask: TypeAlias = Callable[[ToolUse, str, tuple[str, ...]], Awaitable[Answer]]
"""Asks the person: what is to run, why it is asked, and the rules that "always" adds for this session."""


class Gate:
    """Callable: None lets a call through, a text is why not. Questions are put one at a time."""

    def __init__(
        self, permissions: Permissions, workspace: Workspace, ask: Ask | None = None
    ) -> None:
        self.permissions, self._workspace, self._ask = permissions, workspace, ask
        self._asking = anyio.Lock()
        self._who = ""
        self._asks: Callable[[], bool] = lambda: True
        self._approved: set[str] = set()
        self._confirm: dict[str, str] = {}
        # What may not be read one by one is not found by searching either.
        workspace.hidden = lambda path: permissions.hides(path, workspace)

    def beside(
        self,
        permissions: Permissions,
        workspace: Workspace,
        who: str,
        asks: Callable[[], bool],
    ) -> Gate:
        """For an agent: the same person, asked one question at a time and told who wants to know.

        `asks` says whether anybody watches it at this moment.
        """
        gate = Gate(permissions, workspace, self._ask)
        gate._asking, gate._who, gate._asks = self._asking, who, asks
        return gate

    def approve(self, use_id: str) -> None:
        """The next question about this call has been answered elsewhere, with yes."""
        self._approved.add(use_id)

    def confirm(self, use_id: str, why: str) -> None:
        """This call must be asked about, even if rules allow it."""
        self._confirm[use_id] = why

    def forget(self, use_id: str) -> None:
        """The call is over: what was said about it must not count for another with the same id."""
        self._approved.discard(use_id)
        self._confirm.pop(use_id, None)

    def decide(self, use: ToolUse) -> Decision:
        """What the rules say, with what was approved or is to be confirmed."""
        decision = self.permissions.decide(use, self._workspace)
        why = self._confirm.get(use.id)
        if why is not None and decision.behaviour == "allow":
            return Decision("ask", why)
        if why is None and use.id in self._approved and decision.behaviour == "ask":
            return msgspec.structs.replace(decision, behaviour="allow", reason="it was approved")
        return decision

    async def __call__(self, use: ToolUse) -> str | None:
        try:
            return await self._settle(use)
        finally:
            self.forget(use.id)

    async def _settle(self, use: ToolUse) -> str | None:
        decision = self.decide(use)
        if decision.behaviour == "ask" and self._ask is not None and self._asks():
            async with self._asking:
                decision = self.decide(use)  # "always" to the question before may settle this one
                if decision.behaviour == "ask":
                    return await self._put(use, decision, self._ask)
        if decision.behaviour == "allow":
            return None
        return decision.reason if decision.behaviour == "deny" else _unasked(decision)

    async def _put(self, use: ToolUse, decision: Decision, ask: Ask) -> str | None:
        why = f"{self._who}: {decision.reason}" if self._who else decision.reason
        answer = await ask(use, why, decision.remedies)
        if answer == "always":
            for rule in decision.remedies:
                self.permissions.allow(rule)
        return None if answer else "the person said no to it"


def _unasked(decision: Decision) -> str:
    if not decision.remedies:
        return f"{decision.reason}; it must be confirmed, and nobody is here to be asked"
    rules = " ".join(f"--allow {_quoted(rule)}" for rule in decision.remedies)
    return (
        f"{decision.reason}; nobody is here to be asked. To allow it, start with {rules}, or name it in "
        "permissions.allow of the settings"
    )


def _quoted(rule: str) -> str:
    return "'" + rule.replace("'", "'\\''") + "'"
