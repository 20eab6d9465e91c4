"""Prices of models: the dated table, and a user's own prices over it."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from sevenfold.core.errors import SettingsError
from sevenfold.core.tokens import Usage

MILLION: Final = 1_000_000
TABLE: Final = Path(__file__).with_name("prices.toml")

PROVIDER_PREFIX: Final = r"^(?:[a-z]{2,6}\.)?(?:anthropic|openai)[./:]"
"""Prefixes that clouds and our own settings put before a model's name."""
_SNAPSHOT: Final = re.compile(r"(?:[-@]\d{8}|-\d{4}-\d{2}-\d{2}|-latest|-v\d+(?::\d+)?|:thinking|\[1m\])*$")
"""Suffixes of a name that do not make it another model."""


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One model's prices and the limits that go with them."""

    model: str
    input: float  # For one million tokens, in `currency`; this is the base price
    output: float  # For one million tokens
    write_5m: float = 1.25  # A cache write kept for five minutes, as a multiple of `input`
    write_1h: float = 2.0  # A cache write kept for an hour, as a multiple of `input`
    read: float = 0.1  # A cache read, as a multiple of `input`
    window: int
    max_output: int
    min_cacheable: int = 1_024  # A shorter prefix is not cached, without an error
    keeps_thinking: bool = True
    """True if thinking of earlier turns stays in the prompt after the next user message."""
    refuses_overflow: bool = False
    """True if prompt plus `max_tokens` over the window is an error; else the reply just ends there."""
    long_over: int | None = None  # A prompt longer than this is billed as a whole at the two prices below
    long_input: float | None = None
    long_output: float | None = None
    output_units: float | None = None
    """An output token in base-price input tokens, if the two prices do not give it."""
    small: str = ""  # The provider's small model for side work; empty: the model itself
    as_of: str  # The day on which these prices were read
    currency: str = "USD"
    source: str = ""

    def cost(self, usage: Usage) -> float:
        """The cost of this usage, in `currency`."""
        return self._count_units(usage, self._output_units()) * self._input_price(usage) / MILLION

    def units(self, usage: Usage) -> float:
        """The same in base-price input tokens, to compare sessions whatever the model."""
        ratio = self._input_price(usage) / self.input if self.input else 1.0
        return self._count_units(usage, self._output_units()) * ratio

    def _input_price(self, usage: Usage) -> float:
        return self.long_input if self._is_long(usage) and self.long_input else self.input

    def _is_long(self, usage: Usage) -> bool:
        return self.long_over is not None and usage.prompt > self.long_over

    def _output_units(self) -> float:
        if self.output_units is not None:
            return self.output_units
        return self.output / self.input if self.input else 0.0

    def _count_units(self, usage: Usage, output_units: float) -> float:
        if self._is_long(usage) and self.long_input and self.long_output:
            output_units = self.long_output / self.long_input
        return (
            usage.input
            + (usage.cache_write - usage.cache_write_1h) * self.write_5m
            + usage.cache_write_1h * self.write_1h
            + usage.cache_read * self.read
            + usage.output * output_units
        )


class ModelLimits(msgspec.Struct, frozen=True):
    """The window and the longest output of a model, if the user's own file gives them."""

    window: int | None = None
    max_output: int | None = None


LimitsOf: TypeAlias = Callable[[str], ModelLimits]


class Prices:
    """Every price we know, found by the name of the model."""

    def __init__(
        self, table: Mapping[str, Price], aliases: Mapping[str, str], own: Mapping[str, ModelLimits] = {}
    ) -> None:
        """`own`: the limits in the user's file, by name in the table."""
        self._table, self._own = dict(table), dict(own)
        self._names = {**{name: name for name in table}, **aliases}
        self._found: dict[str, Price | None] = {}

    @classmethod
    def load(cls, override: Path | None = None) -> Prices:
        """The table of this package, with a user's file over it."""
        raw, own = _read_table(TABLE), dict[str, Any]()
        if override is not None:
            own = _read_table(override)
            raw = _merge_tables(raw, own, override)
        where = override or TABLE
        prices = {name: _make_price(name, raw, where) for name in raw["models"]}
        aliases = {
            alias: name
            for name, fields in raw["models"].items()
            for alias in _check_names(fields.get("aliases", []), f"models.{name}.aliases", where)
        }
        said = {name: _make_limits(fields, own) for name, fields in own.get("models", {}).items()}
        return cls(prices, aliases, said)

    def of(self, model: str) -> Price | None:
        """The price of this model, or None: an unknown model is never guessed at."""
        if model not in self._found:
            self._found[model] = self._find_price(model)
        return self._found[model]

    def is_free(self, model: str) -> bool:
        """True if its tokens cost nothing, as far as is known."""
        price = self.of(model)
        return price is None or not price.input

    def _find_price(self, model: str) -> Price | None:
        name = re.sub(PROVIDER_PREFIX, "", model)
        best = max((n for n in self._names if _is_name_match(name, n)), key=len, default=None)
        return self._table[self._names[best]] if best is not None else None

    def limits(self, model: str) -> ModelLimits:
        """The limits of this model in the user's own file."""
        found = self.of(model)
        return self._own.get(found.model, ModelLimits()) if found else ModelLimits()

    def __iter__(self) -> Iterator[Price]:
        return iter(self._table.values())


def read_user_limits(path: Path | None) -> LimitsOf:
    """The limits in a user's file; without a file there are none."""
    return Prices.load(path).limits if path is not None else lambda model: ModelLimits()


def _is_name_match(name: str, pattern: str) -> bool:
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1])
    return name.startswith(pattern) and _SNAPSHOT.match(name, len(pattern)) is not None


# --- the file ------------------------------------------------------------------------------------------

_MODEL_KEYS: Final = frozenset(Price.__struct_fields__) - {"model"} | {"family", "aliases"}
_TOP_KEYS: Final = frozenset({"currency", "as_of", "source", "families", "models"})


def _read_table(path: Path) -> dict[str, Any]:
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: the price file cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not valid TOML: {error}.") from error
    _check_keys(raw, _TOP_KEYS, "", path)
    for group in ("families", "models"):
        tables = raw.setdefault(group, {})
        _expect(isinstance(tables, dict), path, group, "must be a table of tables")
        for name, fields in tables.items():
            key = f"{group}.{name}"
            _expect(isinstance(fields, dict), path, key, "must be a table")
            _check_keys(fields, _MODEL_KEYS, f"{key}.", path)
    return raw


def _merge_tables(under: dict[str, Any], over: dict[str, Any], path: Path) -> dict[str, Any]:
    out: dict[str, Any] = {**under, **over}
    for group in ("families", "models"):
        tables = dict(under[group])
        for name, fields in over[group].items():
            if group == "models" and name not in tables:
                for key in ("input", "output"):
                    known = {**out["families"].get(fields.get("family"), {}), **fields}
                    _expect(key in known, path, f"models.{name}.{key}", "is missing")
            tables[name] = {**tables.get(name, {}), **fields}
        out[group] = tables
    return out


_FALLBACK: Final[dict[str, Any]] = {"window": 200_000, "max_output": 32_000, "as_of": "unknown"}


def _make_price(name: str, raw: dict[str, Any], path: Path) -> Price:
    fields = dict(raw["models"][name])
    fields.pop("aliases", None)
    family = fields.pop("family", None)
    key = f"models.{name}"
    _expect(family is None or family in raw["families"], path, f"{key}.family", f"is unknown: {family!r}")
    top = {k: raw[k] for k in ("currency", "as_of", "source") if k in raw}
    merged = {**_FALLBACK, **top, **raw["families"].get(family, {}), **fields, "model": name}
    if not isinstance(merged["as_of"], str):  # TOML has dates of its own
        merged["as_of"] = str(merged["as_of"])
    try:
        price = msgspec.convert(merged, Price)
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at `$.")
        raise SettingsError(f"{path}: {key}.{at.rstrip('`') or '?'}: {what}.") from error
    for field in ("input", "output", "write_5m", "write_1h", "read", "window", "max_output"):
        _expect(getattr(price, field) >= 0, path, f"{key}.{field}", "must not be negative")
    return price


def _make_limits(fields: Mapping[str, Any], own: Mapping[str, Any]) -> ModelLimits:
    said = {**own["families"].get(fields.get("family"), {}), **fields}
    return ModelLimits(said.get("window"), said.get("max_output"))


def _check_keys(fields: Mapping[str, Any], known: frozenset[str], prefix: str, path: Path) -> None:
    for key in fields:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f", did you mean '{near[0]}'?" if near else "."
            raise SettingsError(f"{path}: {prefix}{key} is not a key of the price table{hint}")


def _check_names(value: Any, key: str, path: Path) -> list[str]:
    good = isinstance(value, list) and all(isinstance(v, str) for v in value)
    _expect(good, path, key, "must be a list of names")
    return list(value)


def _expect(condition: bool, path: Path, key: str, what: str) -> None:
    if not condition:
        raise SettingsError(f"{path}: {key} {what}.")
