"""The providers of models. The prefix of a model's name says which one connects it: `openai:NAME`.

    register("acme", connect_acme)                   in a program
    [project.entry-points."sevenfold.models"]        in a package: found when the prefix is first used
    acme = "acme_sevenfold:connect_acme"

The providers of this package are registered in the same way, as "module:attribute", so that none of them is
imported before it is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from sevenfold.core.errors import Mistake, UnknownModel
from sevenfold.core.protocols import Capabilities, Clock, Model

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "sevenfold.models"  # The entry points of other packages
PLAIN: Final = "anthropic"  # The provider of names without a prefix
_PREFIX: Final = re.compile(r"[a-z][a-z0-9_-]*")
_LOAD_ERRORS: Final = (
    AttributeError, ImportError, LookupError, NameError, OSError, RuntimeError, SyntaxError, TypeError,
    ValueError,
)  # fmt: skip
"""Raised by packages that are broken, or not made for this version of Python."""

ConnectModel: TypeAlias = Callable[[str, Any, Clock | None], Model]
"""`(name, access, clock)`: the whole name with its prefix, and a `ModelAccess`."""
DescribeModel: TypeAlias = Callable[[str, int | None], Capabilities]
"""`(name, window)`: what the model can do, without connecting it; the window is what the user asked for."""


class ModelProvider(msgspec.Struct, frozen=True, kw_only=True):
    """One provider. A function may also be given as "module:attribute"."""

    prefix: str
    factory: ConnectModel | str
    capabilities: DescribeModel | str | None = None  # None: by the table of known models
    usage: str = ""
    """The form of its models' names, for the sentence that lists them; by default 'PREFIX:NAME'."""
    keys: tuple[str, ...] = ()  # Environment variables with its secrets. Tools and hooks do not see them.
    url: str = ""  # Environment variable with the address of its server
    runs: str = ""  # The way it runs without a server, for `sevenfold doctor`
    alone: bool = False  # The prefix without a colon is the name of a model, too
    sends_prefix: bool = False  # The name is sent with its prefix

    def connect(self, name: str, access: Any, clock: Clock | None) -> Model:
        model: Model = _load(self.factory)(name, access, clock)
        return model

    def describe(self, name: str, window: int | None) -> Capabilities | None:
        return None if self.capabilities is None else _load(self.capabilities)(name, window)


def _load(target: Any) -> Any:
    if not isinstance(target, str):
        return target
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


class ProviderRegistry:
    """Providers by their prefix."""

    def __init__(self, providers: Iterable[ModelProvider] = ()) -> None:
        self._providers: dict[str, ModelProvider] = {}
        self._missing: set[str] = set()
        for provider in providers:
            self.add(provider)

    def __iter__(self) -> Iterator[ModelProvider]:
        return iter(self._providers.values())

    def add(self, provider: ModelProvider) -> None:
        """Raises `Mistake` if the prefix cannot be one, or is taken."""
        prefix = provider.prefix
        if not _PREFIX.fullmatch(prefix):
            raise Mistake(
                f"{prefix!r} cannot be the prefix of models: use a-z, 0-9, '-' and '_', a letter first"
            )
        if prefix in self._providers:
            raise Mistake(f"the prefix {prefix!r} already has a provider of models: choose another prefix")
        self._providers[prefix] = provider

    def get(self, prefix: str) -> ModelProvider | None:
        """The registered provider; entry points are not looked up."""
        return self._providers.get(prefix)

    def find(self, name: str, *, load: bool = True) -> ModelProvider | None:
        """The provider of a model's name. With `load`, unknown prefixes are sought in entry points."""
        prefix, colon, _ = name.partition(":")
        if not colon:
            found = self.get(name)
            return found if found is not None and found.alone else self.get(PLAIN)
        new = prefix not in self._providers and prefix not in self._missing
        if load and new and _PREFIX.fullmatch(prefix):
            if (provider := _find_entry_point(prefix)) is None:
                self._missing.add(prefix)
            else:
                self.add(provider)
        return self.get(prefix)

    def list_keys(self) -> frozenset[str]:
        """The environment variables that hold secrets."""
        return frozenset(key for provider in self for key in provider.keys)

    def describe_names(self) -> str:
        """The end of a sentence: the names that can be used."""
        *first, last = (provider.usage or f"'{provider.prefix}:NAME'" for provider in self)
        return f"{', '.join(first)}, or {last}"


def _find_entry_point(prefix: str) -> ModelProvider | None:
    from importlib.metadata import entry_points  # slow: it reads the metadata of every package

    found = list({_distribution(one): one for one in entry_points(group=GROUP, name=prefix)}.items())
    if not found:
        return None
    if len(found) > 1:
        names = " and ".join(name for name, _ in found)
        raise UnknownModel(
            f"the packages {names} both have models called '{prefix}:': uninstall one of them"
        )
    (package, entry), *_ = found
    try:
        loaded = entry.load()
    except _LOAD_ERRORS as error:
        why = f"{type(error).__name__}: {error}"
        raise UnknownModel(
            f"the package {package}, which has the models '{prefix}:', cannot be loaded ({why}): "
            "mend or uninstall it"
        ) from error
    if callable(loaded):
        return ModelProvider(prefix=prefix, factory=loaded)
    if isinstance(loaded, ModelProvider) and loaded.prefix == prefix:
        return loaded
    raise UnknownModel(
        f"the package {package} gives {loaded!r} for the models '{prefix}:': it must be a function "
        f"(name, access, clock), or a ModelProvider with the prefix {prefix!r}"
    )


def _distribution(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value


PROVIDERS: Final = ProviderRegistry(
    (
        ModelProvider(
            prefix="offline",
            factory="sevenfold.offline:connect_offline",
            usage="'offline' (needs nothing)",
            runs="the offline engine answers by rules",
            alone=True,
        ),
        ModelProvider(
            prefix="anthropic",
            factory="sevenfold.models.anthropic:connect_anthropic",
            usage="an Anthropic model such as 'claude-sonnet-5-5', 'anthropic:NAME'",
            keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
            url="ANTHROPIC_BASE_URL",
        ),
        ModelProvider(
            prefix="openai",
            factory="sevenfold.models.openai:connect_openai",
            usage="'openai:NAME' (with OPENAI_BASE_URL for compatible servers)",
            keys=("OPENAI_API_KEY",),
            url="OPENAI_BASE_URL",
            alone=True,
        ),
        ModelProvider(
            prefix="local",
            factory="sevenfold.models.local:connect_local",
            capabilities="sevenfold.models.local:read_gguf_capabilities",
            usage="'local:FILE.gguf'",
            runs="llama.cpp runs the file on this machine",
            sends_prefix=True,
        ),
    )
)


def register(prefix: str, factory: ConnectModel, **details: Any) -> None:
    """Make `prefix:NAME` the name of models that `factory(name, access, clock)` connects.

    The details are the other fields of `ModelProvider`: `capabilities`, `usage`, `keys`, `url`, ….
    """
    PROVIDERS.add(ModelProvider(prefix=prefix, factory=factory, **details))
