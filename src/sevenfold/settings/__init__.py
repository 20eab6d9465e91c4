"""Settings and the environment: what they say together, and what a folder may say before it is trusted.

High to low: policy, command line, environment, local file, user file, project file. Lists are put
together, single values are taken from the highest. This package has no other reader of either.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.layers.settings import Switches
from sevenfold.settings.checks import Loading, merged, plain, with_paths
from sevenfold.settings.environment import Environment
from sevenfold.settings.files import Document
from sevenfold.settings.schema import PermissionSettings, Settings, settings_from

__all__ = [
    "Environment",
    "Loaded",
    "PermissionSettings",
    "Settings",
    "Switches",
    "load",
    "memory_off",
    "memory_path",
]

POLICY: Final = Path("/etc/sevenfold/settings.json")


# --- the files ------------------------------------------------------------------------------------------


class Loaded(msgspec.Struct, frozen=True):
    """The settings, and how they came about."""

    settings: Settings
    files_read: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    """What the files of a folder say and may not say while it is not trusted: file, line and key."""
    everywhere: Settings = Settings()
    """What holds for every project: without the files of this one and without the command line."""


def load(
    project_root: Path,
    environment: Environment,
    overrides: Mapping[str, Any] = {},
    trusted: bool = False,
    *,
    policy: Path = POLICY,
) -> Loaded:
    """Read every settings file. `overrides` is the command line, in the shape of a file."""
    root = project_root.resolve()
    loading = Loading(root, trusted)
    given = Document("the command line", plain(overrides))
    said = Document("the environment", environment.as_settings())
    rules = loading.file(policy)
    low_to_high = [said, loading.taken(given), rules]
    own = loading.file(environment.home / "settings.json")
    limits = settings_from(merged([own, *low_to_high]))
    local = loading.of_folder("settings.local.json", limits)
    project = loading.of_folder("settings.json", limits)
    settings = settings_from(merged([project, own, local, *low_to_high]))
    return Loaded(
        with_paths(settings, root),
        tuple(loading.read),
        tuple(loading.warnings),
        tuple(loading.ignored),
        settings_from(merged([own, said, rules])),
    )


# --- memory's own switches ------------------------------------------------------------------------------


def memory_off(environment: Environment, settings: Settings) -> str | None:
    """Why memory is off, or None when it is on. The first that has something to say decides."""
    if environment.disable_memory is not None:
        return "SEVENFOLD_DISABLE_MEMORY is set" if environment.disable_memory else None
    if environment.bare:
        return "this is a bare session"
    if environment.remote and not environment.remote_memory_dir:
        return "SEVENFOLD_REMOTE is set and SEVENFOLD_REMOTE_MEMORY_DIR is not"
    return None if settings.memory_enabled else "memoryEnabled is false in the settings"


def memory_path(environment: Environment, settings: Settings) -> str | None:
    """Where memory was told to live, or None for the usual place; not checked yet."""
    remote = environment.remote_memory_dir if environment.remote else None
    return environment.memory_path or remote or settings.memory_directory
