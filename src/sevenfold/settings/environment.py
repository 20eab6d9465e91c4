"""The environment, read in this one place, once, and the keys that the user keeps. Keys are never shown."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sevenfold.core.errors import SettingsError, StorageFailure
from sevenfold.core.messages import Json
from sevenfold.models.registry import PROVIDERS
from sevenfold.settings.files import CLAUDE_FOLDER, FOLDER, format_value
from sevenfold.storage.files import make_private_dir, read_if_there, write_atomic


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The environment variables, read once. Keys are never shown."""

    home: Path
    """The home folder of Sevenfold."""
    shared: Path | None = None
    """The folder of Claude Code, where memory and instruction files are shared with it."""
    anthropic_key: str = ""
    anthropic_token: str = ""
    anthropic_base_url: str | None = None
    openai_key: str = ""
    openai_base_url: str | None = None
    fleet_url: str = ""
    window: int | None = None
    auto_compact_percent: float | None = None
    block_limit: int | None = None
    disable_memory: bool | None = None
    """True: memory is off; False: it is on whatever else says; None: not said."""
    bare: bool = False
    remote: bool = False
    remote_memory_dir: str | None = None
    memory_path: str | None = None
    memory_guidelines: str | None = None
    claude_config: Path | None = None
    plugin_off: bool = False
    no_color: bool = False
    telemetry_disabled: bool = False
    variables: Mapping[str, str] = {}
    """All of it, for those who need to pass it on."""

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None) -> Environment:
        """Of this process, or of a mapping. A variable with a value that makes no sense is an error."""
        variables = dict(os.environ if environ is None else environ)
        values: Json = {}
        for name, (field, parse, _) in VARIABLES.items():
            text = variables.get(name, "")
            if not text.strip():
                continue
            try:
                values[field] = parse(text)
            except ValueError as error:
                got = "" if name in _KEYS else f"; got {format_value(text)}"
                raise SettingsError(f"{name} must be {error}{got}.") from error
        home: Path = values.pop("home", Path("~") / FOLDER)
        return cls(home=_expanded(home, variables), variables=variables, **values).based(home)._with_keys()

    def _with_keys(self) -> Environment:
        """With the keys that the user keeps in the home folder; a variable counts before them."""
        kept = read_kept_keys(self.home)
        known = {VARIABLES[name][0]: key for name, key in kept.items() if name in _KEYS}
        return replace(self, **{name: key for name, key in known.items() if not getattr(self, name)})

    def based(self, home: Path) -> Environment:
        """With another home. The folder of Claude Code is none: it is shared, and ours stays apart."""
        home = _expanded(home, self.variables)
        if not self._is_shared(home):
            return replace(self, home=home, shared=None)
        own = self.home
        if self._is_shared(own):
            own = _expanded(Path("~") / FOLDER, self.variables)
        return replace(self, home=own, shared=home)

    def _is_shared(self, home: Path) -> bool:
        """True for the folder of Claude Code, by its name or by a link that leads there."""
        if home.name == CLAUDE_FOLDER:
            return True
        real = Path(os.path.realpath(home))
        if real.name == CLAUDE_FOLDER:
            return True
        try:
            return real == Path(os.path.realpath(self._find_claude_folder()))
        except SettingsError:  # there is no home folder
            return False

    @property
    def claude_folder(self) -> Path:
        """The folder of Claude Code: `~/.claude`, or the one that its own variable names."""
        return self.shared or self._find_claude_folder()

    def _find_claude_folder(self) -> Path:
        return self.claude_config or _user_home(self.variables) / CLAUDE_FOLDER

    def tool_environment(self, extra: Mapping[str, str] = {}) -> dict[str, str]:
        """The environment of tools and hooks: without our keys, with `env` of the settings.

        A command the model runs could print a key or send it away. The user can give one back by `env` in
        the user settings.
        """
        keys = PROVIDERS.list_keys()
        kept = {name: text for name, text in self.variables.items() if name not in keys}
        return {**kept, **extra}

    def as_settings(self) -> Json:
        """The settings that have a variable of their own."""
        values = {
            "anthropicBaseUrl": self.anthropic_base_url,
            "openaiBaseUrl": self.openai_base_url,
            "window": self.window,
            "autoCompactPercent": self.auto_compact_percent,
            "blockLimit": self.block_limit,
            "guidelines": self.memory_guidelines,
        }
        said: Json = {key: value for key, value in values.items() if value is not None}
        return said | ({"telemetry": {"enabled": False}} if self.telemetry_disabled else {})

    def __repr__(self) -> str:
        return f"Environment({', '.join(f'{k}={v!r}' for k, v in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        secrets = {name: "set" if shown[name] else "not set" for name in _SECRET}
        return list((shown | secrets | {"variables": len(self.variables)}).items())


def is_completing() -> bool:
    """True if the completion function of a shell has started us, to ask which words may come next."""
    return "_SEVENFOLD_COMPLETE" in os.environ


def _expanded(home: Path, variables: Mapping[str, str]) -> Path:
    if home.parts[:1] == ("~",):
        home = _user_home(variables).joinpath(*home.parts[1:])
    return home.absolute()


def _user_home(variables: Mapping[str, str]) -> Path:
    try:
        return Path(variables["HOME"]) if variables.get("HOME") else Path.home()
    except RuntimeError as error:
        raise SettingsError("This user has no home folder; set SEVENFOLD_HOME.") from error


def _count(text: str) -> int:
    if not (text.strip().isascii() and text.strip().isdigit() and 0 < int(text) < 2**53):
        raise ValueError("a whole number of at least 1")
    return int(text)


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 100:
        raise ValueError("a number above 0 and up to 100")
    return value


def _switch(text: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True}
    known |= {"0": False, "false": False, "no": False, "off": False}
    if text.strip().lower() not in known:
        raise ValueError("1 or 0")
    return known[text.strip().lower()]


def _url(text: str) -> str:
    if not text.strip().startswith(("http://", "https://")):
        raise ValueError("an address that begins with http:// or https://")
    return text.strip()


def _key(text: str) -> str:
    text = text.strip()
    if not (text.isascii() and text.isprintable()):
        raise ValueError("a key as it was issued, without line breaks or odd characters")
    return text


_Variable = tuple[str, Callable[[str], Any], str]
VARIABLES: Final[dict[str, _Variable]] = {
    "SEVENFOLD_HOME": (
        "home",
        Path,
        "Where everything is kept; `~/.sevenfold` without it. `~/.claude`: memory is shared there.",
    ),
    "ANTHROPIC_API_KEY": (
        "anthropic_key",
        _key,
        "The key for Claude models. Without it: the one that you keep in `<home>/credentials.json`.",
    ),
    "ANTHROPIC_AUTH_TOKEN": ("anthropic_token", _key, "A bearer token instead of the key."),
    "ANTHROPIC_BASE_URL": ("anthropic_base_url", _url, "As `anthropicBaseUrl`."),
    "OPENAI_API_KEY": ("openai_key", _key, "The key for `openai:` models; it can be kept there, too."),
    "OPENAI_BASE_URL": ("openai_base_url", _url, "As `openaiBaseUrl`."),
    "SEVENFOLD_FLEET_URL": ("fleet_url", str, "The PostgreSQL database of the fleet, or `service=NAME`."),
    "SEVENFOLD_WINDOW": ("window", _count, "As `window`."),
    "SEVENFOLD_AUTOCOMPACT_PERCENT": ("auto_compact_percent", _percent, "As `autoCompactPercent`."),
    "SEVENFOLD_BLOCK_LIMIT": ("block_limit", _count, "As `blockLimit`."),
    "SEVENFOLD_DISABLE_MEMORY": (
        "disable_memory",
        _switch,
        "1: memory is off. 0: it is on, whatever else says.",
    ),
    "SEVENFOLD_BARE": ("bare", _switch, "1: a session without memory."),
    "SEVENFOLD_REMOTE": ("remote", _switch, "1: this machine is not the user's own; memory is off."),
    "SEVENFOLD_REMOTE_MEMORY_DIR": (
        "remote_memory_dir",
        str,
        "Where memory lives on a machine that is not the user's own; then it is on.",
    ),
    "SEVENFOLD_MEMORY_PATH": ("memory_path", str, "Where memory lives, before `memoryDirectory`."),
    "SEVENFOLD_MEMORY_GUIDELINES": ("memory_guidelines", str, "As `guidelines`."),
    "CLAUDE_CONFIG_DIR": (
        "claude_config",
        Path,
        "Claude Code's own: its folder, if that is not `~/.claude`.",
    ),
    "SEVENFOLD_PLUGIN_OFF": (
        "plugin_off",
        _switch,
        "1: hooks in other agents answer nothing, and nothing is recalled or guarded there.",
    ),
    "NO_COLOR": ("no_color", bool, "Anything: no colours."),
    "OTEL_SDK_DISABLED": ("telemetry_disabled", _switch, "true: OpenTelemetry is told nothing."),
}
_KEYS: Final = frozenset(name for name, (_, parse, _) in VARIABLES.items() if parse is _key)
_SECRET: Final = frozenset(VARIABLES[name][0] for name in _KEYS)


# --- keys that are kept ---------------------------------------------------------------------------------


CREDENTIALS: Final = "credentials.json"  # In the home folder; only this user can read it
_LARGEST: Final = 100_000


def read_kept_keys(home: Path) -> dict[str, str]:
    """The kept keys, by the name of their environment variable. A file that others can read is an error."""
    path = home / CREDENTIALS
    try:
        data = read_if_there(path, _LARGEST)
    except StorageFailure as error:
        raise SettingsError(str(error)) from error
    if data is None:
        return {}
    mode = stat.S_IMODE(path.stat().st_mode)
    if os.name == "posix" and mode & 0o077:
        raise SettingsError(f"{path} holds keys, and others can read it ({mode:o}); run: chmod 600 {path}")
    try:
        return msgspec.json.decode(data, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError):  # the error could quote a key
        raise SettingsError(
            f"{path} is not an object of names and keys; remove it, and paste the key again"
        ) from None


def keep_key(home: Path, variable: str, key: str) -> Path:
    """Keep a key under the name of its environment variable; returns the file."""
    path = home / CREDENTIALS
    known = {**read_kept_keys(home), variable: key}
    make_private_dir(home)
    write_atomic(path, msgspec.json.format(msgspec.json.encode(known), indent=2) + b"\n")
    return path
