"""The values of permission settings, apart from what decides by them and takes longer to load."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Mode: TypeAlias = Literal["default", "acceptEdits", "plan", "bypassPermissions", "dontAsk"]
SandboxUse: TypeAlias = Literal["unasked", "all", "off"]


class PermissionRules(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"mode": "defaultMode", "additional_directories": "additionalDirectories"},
):
    """The `permissions` part of a settings file."""

    mode: Mode | None = None
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    additional_directories: tuple[str, ...] = ()  # Folders that count as part of the project
