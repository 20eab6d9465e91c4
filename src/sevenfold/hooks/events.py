"""The hooks of the settings: the moments, and the commands that run at each."""

from __future__ import annotations

import re
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

TIMEOUT: Final = 60.0


_PLAIN_NAMES: Final = r"[\w\s|,-]+"
"""A matcher of such characters is a list of names; with any other it is a regular expression."""
_OLDER_NAMES: Final = {"Agent": ("Task",)}
"""Names in matchers that were written for older tools."""


class HookCommand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One command of the user."""

    type: Annotated[str, Meta(description="Only `command` is run.", examples=["command"])] = "command"
    command: Annotated[str, Meta(description="Run by `sh -c`.", examples=["./check.sh"])] = ""
    timeout: Annotated[
        float, Meta(gt=0, description="Seconds; then it and all it started are ended.", examples=[60])
    ] = TIMEOUT


class HookMatcher(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Commands, and the names they run for."""

    matcher: Annotated[
        str,
        Meta(
            description="Names (`Edit|Write`), or a regular expression for a part of the name; empty or "
            "`*`: every one.",
            examples=["Edit|Write"],
        ),
    ] = ""
    hooks: Annotated[
        tuple[HookCommand, ...],
        Meta(
            description="The commands; they run side by side.",
            examples=[[{"type": "command", "command": "./check.sh"}]],
        ),
    ]

    def matches(self, name: str) -> bool:
        if self.matcher in ("", "*"):
            return True
        names = (name, *_OLDER_NAMES.get(name, ()))
        if re.fullmatch(_PLAIN_NAMES, self.matcher):
            return not {part.strip() for part in re.split("[|,]", self.matcher)}.isdisjoint(names)
        return any(re.search(self.matcher, one) for one in names)


Matchers: TypeAlias = tuple[HookMatcher, ...]
_EXAMPLE: Final = [{"matcher": "", "hooks": [{"type": "command", "command": "./check.sh"}]}]


def _describe_moment(description: str) -> Meta:
    return Meta(description=description, examples=[_EXAMPLE])


class HookEvents(msgspec.Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True):
    """The hooks of each moment."""

    session_start: Annotated[
        Matchers,
        _describe_moment(
            "A session opens; matched on `startup`, `resume`, `clear` or `compact`. Adds context."
        ),
    ] = ()
    user_prompt_submit: Annotated[
        Matchers, _describe_moment("The user said something. Adds context, or refuses the prompt.")
    ] = ()
    pre_tool_use: Annotated[
        Matchers,
        _describe_moment("Before a tool; matched on its name. Allows, asks, refuses or changes the input."),
    ] = ()
    post_tool_use: Annotated[
        Matchers,
        _describe_moment("After a tool that worked; matched on its name. Adds to what the model reads."),
    ] = ()
    post_tool_use_failure: Annotated[
        Matchers,
        _describe_moment("After a tool that failed; matched on its name. Adds to what the model reads."),
    ] = ()
    pre_compact: Annotated[
        Matchers,
        _describe_moment("Before a compaction; matched on `manual` or `auto`. Adds to it or refuses."),
    ] = ()
    post_compact: Annotated[
        Matchers, _describe_moment("After a compaction; matched on `manual` or `auto`.")
    ] = ()
    stop: Annotated[Matchers, _describe_moment("A turn is about to end. Refusing makes it go on.")] = ()
    subagent_stop: Annotated[
        Matchers, _describe_moment("The same for a sub-agent; matched on its type.")
    ] = ()
    session_end: Annotated[Matchers, _describe_moment("A session closes; matched on the reason.")] = ()
    notification: Annotated[
        Matchers, _describe_moment("The user is told something; matched on the kind of notification.")
    ] = ()
