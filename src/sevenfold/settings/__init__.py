"""Settings and the environment together, with the limits for folders that are not trusted.

High to low: policy, command line, environment, local file, user file, project file. Lists are put
together, single values are taken from the highest. No other package reads either.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from sevenfold.settings.checks import SettingsLoader, merge_documents, resolve_paths, to_plain_json
from sevenfold.settings.environment import Environment
from sevenfold.settings.files import CLAUDE_FOLDER, FOLDER, HONOURED, SettingsDocument
from sevenfold.settings.layers import Switches
from sevenfold.settings.schema import PermissionSettings, Settings, make_settings

__all__ = [
    "Environment",
    "LoadedSettings",
    "PermissionSettings",
    "Settings",
    "Switches",
    "explain_memory_off",
    "find_configured_path",
    "load_settings",
]

POLICY: Final = Path("/etc/sevenfold/settings.json")


# --- the files ------------------------------------------------------------------------------------------


class LoadedSettings(msgspec.Struct, frozen=True):
    """The settings, and how they came about."""

    settings: Settings
    files_read: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    """Settings that are ignored because the folder is not trusted: file, line and key."""
    everywhere: Settings = Settings()
    """The settings for every project: without the files of this one and the command line."""
    notes: tuple[str, ...] = ()
    """For `doctor`: what of Claude Code's files holds, and what does not."""


def load_settings(
    project_root: Path,
    environment: Environment,
    overrides: Mapping[str, Any] = {},
    trusted: bool = False,
    *,
    policy: Path = POLICY,
) -> LoadedSettings:
    """Read every settings file. `overrides` is the command line, in the shape of a file."""
    root = project_root.resolve()
    loading = SettingsLoader(root, trusted)
    given = SettingsDocument("the command line", to_plain_json(overrides))
    said = SettingsDocument("the environment", environment.as_settings())
    rules = loading.file(policy)
    low_to_high = [said, loading.taken(given), rules]
    own = loading.file(environment.home / "settings.json")
    claude = _load_claude_user(loading, environment, own)
    limits = make_settings(merge_documents([claude, own, *low_to_high]))
    local = loading.of_folder("settings.local.json", limits)
    project = loading.of_folder("settings.json", limits)
    theirs = _load_claude_project(loading, root, limits)
    loading.hold_servers()
    settings = make_settings(
        merge_documents([project, theirs[0], claude, own, theirs[1], local, *low_to_high])
    )
    return LoadedSettings(
        resolve_paths(settings, root),
        tuple(loading.read),
        tuple(loading.warnings),
        tuple(loading.ignored),
        make_settings(merge_documents([own, said, rules])),
        tuple(loading.notes),
    )


def _load_claude_user(
    loading: SettingsLoader, environment: Environment, own: SettingsDocument | None
) -> SettingsDocument | None:
    """Claude Code's settings of this user, key by key where ours say nothing."""
    if not environment.variables.get("HOME"):  # an environment that was made up has no user
        return None
    ours = own.values if own is not None else {}
    return loading.of_claude(
        environment.claude_folder / "settings.json", [key for key in HONOURED if key not in ours]
    )


def _load_claude_project(
    loading: SettingsLoader, root: Path, limits: Settings
) -> tuple[SettingsDocument | None, SettingsDocument | None]:
    """Claude Code's settings of the project, shared and local; none where it has shared ones of ours.

    What a user keeps for himself (`settings.local.json`) does not count: a rule that is added there must
    not switch a guard off.
    """
    ours, names = root / FOLDER / "settings.json", ("settings.json", "settings.local.json")
    if not ours.exists():
        return loading.of_folder(names[0], limits, CLAUDE_FOLDER), loading.of_folder(
            names[1], limits, CLAUDE_FOLDER
        )
    there = [path for name in names if (path := root / CLAUDE_FOLDER / name).exists()]
    loading.notes += [f"{path}: not read, because {ours} is there" for path in there]
    return None, None


# --- memory's own switches ------------------------------------------------------------------------------


def explain_memory_off(environment: Environment, settings: Settings) -> str | None:
    """The reason memory is off, or None if it is on. The first source with a word decides."""
    if environment.disable_memory is not None:
        return "SEVENFOLD_DISABLE_MEMORY is set" if environment.disable_memory else None
    if environment.bare:
        return "this is a bare session"
    if environment.remote and not environment.remote_memory_dir:
        return "SEVENFOLD_REMOTE is set and SEVENFOLD_REMOTE_MEMORY_DIR is not"
    return None if settings.memory_enabled else "memoryEnabled is false in the settings"


def find_configured_path(environment: Environment, settings: Settings) -> str | None:
    """The configured folder of memory, not checked yet; None for the usual place."""
    remote = environment.remote_memory_dir if environment.remote else None
    return environment.memory_path or remote or settings.memory_directory
