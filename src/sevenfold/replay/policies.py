"""Policies: TOML files with the layers and settings of a replay; their keys are those of the settings."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, inspect
from msgspec.structs import replace

from sevenfold.core.errors import Mistake, SettingsError, StorageFailure
from sevenfold.settings.layers import (
    CompactionSettings,
    ExtractionSettings,
    MicroSettings,
    NotesSettings,
    PolicyName,
    SideWay,
    Switches,
    ToolResultSettings,
)
from sevenfold.settings.schema import Settings, make_settings
from sevenfold.storage.files import read_bounded

LARGEST: Final = 100_000  # Bytes of a policy file
Kind = TypeVar("Kind", bound=msgspec.Struct)
_LINE: Final = re.compile(r"at line (\d+)")
_TABLE: Final = re.compile(r"^\s*\[\[?\s*([^\[\]]+?)\s*\]")
_KEY: Final = re.compile(r"^\s*([A-Za-z0-9_\-.\"' ]+?)\s*=")
_AT: Final = re.compile(r" - at `\$\.?(.*)`$")


def read_policy(path: Path, kind: type[Kind]) -> Kind:
    """Read the file as this kind of value."""
    text = _read_text(path)
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        found = _LINE.search(str(error))
        where = f"{path}:{found[1]}" if found else f"{path}"
        raise SettingsError(f"{where}: not valid TOML: {_format_toml_error(error)}.") from None
    lines = _index_lines(text)
    for key, why in _find_unknown_keys(inspect.type_info(kind), values, ""):
        raise SettingsError(f"{_format_position(path, lines, key)}: {why}")
    try:
        return msgspec.convert(values, kind, dec_hook=lambda wanted, value: wanted(value))
    except msgspec.ValidationError as error:
        at = _AT.search(str(error))
        key = at[1].partition("[")[0] if at else ""
        said = _AT.sub("", str(error)).replace("`", "").lower()
        known = _list_permitted(inspect.type_info(kind), key) if "enum" in said else ""
        where = f"{_format_position(path, lines, key)}: {key or 'the file'}"
        raise SettingsError(f"{where}: {said}{known}.") from None


def format_suggestion(given: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(given, list(known), 1)
    return f"did you mean {near[0]!r}?" if near else ""


def _read_text(path: Path) -> str:
    try:
        return read_bounded(path, LARGEST).decode("utf-8-sig")
    except StorageFailure as error:
        raise SettingsError(str(error)) from error
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: this is not UTF-8 text; save it as UTF-8.") from None


def _find_unknown_keys(kind: inspect.Type, value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Unknown keys, each with a suggestion."""
    struct = _find_struct(kind)
    if struct is None or not isinstance(value, dict):
        return
    fields = {field.encode_name: field for field in struct.fields}
    for name, inner in value.items():
        at = f"{key}.{name}" if key else name
        if name in fields:
            yield from _find_unknown_keys(fields[name].type, inner, at)
        else:
            near = format_suggestion(name, fields) or f"there are {', '.join(fields)}."
            yield at, f"{at} is not a key of a policy; {near}"


def _list_permitted(kind: inspect.Type, key: str) -> str:
    """The values that a key may have, if they can be listed."""
    for name in key.split("."):
        struct = _find_struct(kind)
        fields = {field.encode_name: field.type for field in struct.fields} if struct else {}
        if name not in fields:
            return ""
        kind = fields[name]
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    values = [str(v) for one in kinds if isinstance(one, inspect.LiteralType) for v in one.values]
    return f"; it may be {', '.join(values)}" if values else ""


def _find_struct(kind: inspect.Type) -> inspect.StructType | None:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        return next((found for t in kind.types if (found := _find_struct(t))), None)
    return kind if isinstance(kind, inspect.StructType) else None


def _index_lines(text: str) -> dict[str, int]:
    """The line of each key and each table, for error messages."""
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TABLE.match(line):
            table = _normalise_key(header[1])
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            name = _normalise_key(key[1])
            found.setdefault(f"{table}.{name}" if table else name, number)
    return found


def _normalise_key(written: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in written.split("."))


def _format_position(path: Path, lines: dict[str, int], key: str) -> str:
    while key and key not in lines:
        key = key.rpartition(".")[0]
    return f"{path}:{lines[key]}" if key in lines else f"{path}"


def _format_toml_error(error: BaseException) -> str:
    return (str(error) or "nested too deeply").rstrip(".")


FOLDER: Final = Path(__file__).with_name("builtin")
DESCRIPTIONS: Final[dict[PolicyName, str]] = {
    "specified": "The order and the numbers of the description: notes at steps, summaries at the limit.",
    "balanced": "What Sevenfold does when nothing is set.",
    "thrifty": "The cheapest that was found.",
}
BUILT_IN: Final = ("append-only", "lifetimes", "clear-every-10", "summarise-at-80", *DESCRIPTIONS)
DEFAULT: Final = "balanced"
Lifetime: TypeAlias = Literal["5m", "1h", "recorded"]


class ClearRule(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A rule that clears old tool results by counting alone, in place of layer 2."""

    every: Annotated[
        int, Meta(ge=0, description="Clear when so many results are old. 0: not by number.")
    ] = 0
    tokens: Annotated[
        int, Meta(ge=0, description="Clear when old results hold so many tokens. 0: not by size.")
    ] = 0
    keep: Annotated[int, Meta(ge=1, description="So many of the newest are not old.")] = 5

    def __post_init__(self) -> None:
        if not self.every and not self.tokens:
            raise ValueError("it never clears anything: say `every` or `tokens`")


class Policy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a session is kept small, from its first request to its last."""

    name: Annotated[str, Meta(description="Unset: the name of the file.")] = ""
    description: Annotated[str, Meta(description="A sentence for people.")] = ""
    cache_ttl: Annotated[
        Lifetime, Meta(description="How long the provider keeps a prefix; `recorded`: as it was paid for.")
    ] = "5m"
    system_ttl: Annotated[
        Lifetime | None,
        Meta(description="The same for what stands before the messages. Unset: 1h where a person talks."),
    ] = None
    keep_warm: Annotated[
        int, Meta(ge=0, description="Requests in a row that only keep the cache warm in a silence.")
    ] = 0
    auto_compact_percent: Annotated[
        Annotated[float, Meta(gt=0, le=100)] | None,
        Meta(description="Compact when this much of the window is used. It only lowers the limit."),
    ] = None
    recorded_breaks: Annotated[
        bool, Meta(description="Lose the cache where the recording lost it inside its lifetime, too.")
    ] = True
    compactions: Annotated[
        Literal["own", "recorded"],
        Meta(description="Compact where the policy does, or where the recording did."),
    ] = "own"
    clear: ClearRule | None = None
    flags: Switches = Switches()
    tool_results: ToolResultSettings = ToolResultSettings()
    micro: MicroSettings = MicroSettings()
    notes: NotesSettings = NotesSettings()
    compaction: CompactionSettings = CompactionSettings()
    extraction: ExtractionSettings = ExtractionSettings()
    side_work: Annotated[
        SideWay, Meta(description="How notes and memories are asked for, as in the settings.")
    ] = "cheapest"

    @property
    def compacts(self) -> bool:
        """True if it compacts by itself; if not, the recorded compactions are carried out."""
        return self.compactions == "own" and self.flags.compact


LAYERS: Final[dict[str, dict[str, bool]]] = {  # That can be left out, and the flags that do it
    "tool_results": {"tool_results": False, "aggregate_budget": False},
    "micro": {"micro_cost": False, "micro_time": False, "micro_cache_edit": False, "micro_api": False},
    "notes": {"notes": False, "payout": False},
    "compaction": {"compact": False, "reactive": False, "snip": False, "collapse": False},
    "keep_warm": {"pre_cold": False},
    "extraction": {"extraction": False},
    "recall": {"recall": False},
    "dream": {"dream": False},
}
# Flags without effect in a replay: those of the provider, of teams and of layer 7
ELSEWHERE: Final = frozenset({
    "micro_cache_edit", "micro_api", "reactive", "server_compact", "team", "agent_summaries",
    "threads",
})  # fmt: skip


def load_policy(name: str) -> Policy:
    """A policy that comes with this package, or the one in a file."""
    if name in DESCRIPTIONS:
        return make_policy(name, make_settings({"policy": name}))
    if name in BUILT_IN:
        return _load_file(FOLDER / f"{name}.toml", name)
    path = Path(name).expanduser()
    if not path.is_file():
        near = format_suggestion(name, BUILT_IN)
        raise Mistake(
            f"there is no policy {name!r}: {near or 'it is neither a file nor one of ours'}; "
            f"ours are {', '.join(BUILT_IN)}"
        )
    return _load_file(path, path.stem)


def make_policy(name: PolicyName, settings: Settings) -> Policy:
    """The policy that a session with these settings has."""
    return Policy(
        name=name,
        description=DESCRIPTIONS[name],
        cache_ttl=settings.cache_ttl,
        system_ttl=settings.system_ttl,
        auto_compact_percent=settings.auto_compact_percent,
        flags=settings.flags,
        tool_results=settings.tool_results,
        micro=settings.micro,
        notes=settings.notes,
        compaction=settings.compaction,
        extraction=settings.extraction,
        side_work=settings.side_work,
    )


def _load_file(path: Path, name: str) -> Policy:
    found = read_policy(path, Policy)
    return found if found.name else replace(found, name=name)


def describe_unheeded(policy: Policy) -> str:
    """A note on settings of a user's policy that have no effect; empty without any."""
    said = [_describe_useless_flags(policy)]
    if not policy.flags.compact:
        said.append(
            "with compact off the compactions of the recording are carried out, and no notes are kept"
        )
    return "; ".join(one for one in said if one)


def _describe_useless_flags(policy: Policy) -> str:
    usual = Switches()
    turned = [flag for flag in Switches.__struct_fields__ if flag in ELSEWHERE]
    turned = [flag for flag in turned if getattr(policy.flags, flag) != getattr(usual, flag)]
    return f"these flags change nothing in a replay: {', '.join(turned)}" if turned else ""


def list_active_layers(policy: Policy) -> dict[str, bool]:
    """The layers and flags, each True if it has an effect in a replay of this policy."""
    on, plain = policy.flags, policy.micro.policy == "plain"
    own = policy.clear is None
    flags = {
        "tool_results": on.tool_results,
        "aggregate_budget": on.tool_results and on.aggregate_budget,
        "micro_cost": on.micro_cost and own and not plain,
        "micro_time": on.micro_time and own and not plain,
        "pre_cold": on.pre_cold,
        "notes": on.notes and policy.compacts,
        "payout": on.notes and on.payout and policy.compacts,
        "compact": policy.compacts,
        "precompute": on.precompute and policy.compacts and not on.collapse,
        "snip": on.snip,
        "collapse": on.collapse,
        "extraction": on.extraction,
        "recall": on.recall,
        "dream": on.dream,
    }
    by_flag = flags["micro_cost"] or flags["micro_time"]
    micro = not own or plain or by_flag or policy.micro.thinking_replies > 0
    compaction = policy.compacts or on.snip or on.collapse
    warm = policy.keep_warm > 0 or on.pre_cold
    return {**flags, "micro": micro, "compaction": compaction, "keep_warm": warm}


def find_useless_exclusions(policy: Policy, layers: Sequence[str]) -> list[str]:
    """The layers among these that are off in the policy anyway."""
    known = list_active_layers(policy)
    return [name for name in map(_normalise_name, layers) if not known.get(name, True)]


def exclude_layers(policy: Policy, layers: Sequence[str]) -> Policy:
    """The same policy with some layers, or single flags, switched off; its name says so."""
    flags = dict[str, bool]()
    left_out = list(map(_normalise_name, layers))
    for given, layer in zip(layers, left_out, strict=True):
        flags.update(LAYERS.get(layer) or {_check_flag(given, layer): False})
    if not left_out:
        return policy
    less = replace(
        policy,
        flags=replace(policy.flags, **flags),
        keep_warm=0 if "keep_warm" in left_out else policy.keep_warm,
        clear=None if "micro" in left_out else policy.clear,
        # The plain rule and old thinking are settings; the flags do not turn them off.
        micro=replace(policy.micro, policy="cost", thinking_replies=0)
        if "micro" in left_out
        else policy.micro,
    )
    went = list_active_layers(policy)["notes"] and not less.compacts and "notes" not in left_out
    also = " and with it notes" if went else ""
    return replace(less, name=f"{policy.name} without {', '.join(left_out)}{also}")


def _normalise_name(layer: str) -> str:
    return layer.strip().replace("-", "_")


def _check_flag(given: str, flag: str) -> str:
    """The flag; raises `Mistake` if it has no effect in a replay or does not exist."""
    if flag in ELSEWHERE:
        raise Mistake(
            f"a replay does not carry out {given!r}, so leaving it out changes nothing; "
            f"what can be left out is {', '.join(LAYERS)}, or a flag of theirs"
        )
    if flag not in Switches.__struct_fields__:
        near = format_suggestion(flag, (*LAYERS, *Switches.__struct_fields__))
        raise Mistake(
            f"there is no layer {given!r} to leave out: {near or 'it is not known'}; "
            f"the layers are {', '.join(LAYERS)}"
        )
    return flag
