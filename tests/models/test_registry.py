"""Providers of models: registered by a program, found as an entry point, or refused with the reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sevenfold.core.errors import Mistake, UnknownModel
from sevenfold.core.protocols import Capabilities, Clock, Model
from sevenfold.models import ModelAccess, ModelProvider, connect_model, find_capabilities, register
from sevenfold.models.capabilities import to_wire_name
from sevenfold.models.registry import PROVIDERS, ProviderRegistry
from sevenfold.settings.environment import Environment
from sevenfold.testing import ScriptedModel

PROGRAM = """
from sevenfold.models import ModelProvider
from sevenfold.testing import ScriptedModel

def connect(name, access, clock):
    model = ScriptedModel([access.variables.get("KEY_OF_IT", "no key")])
    model.name = name
    return model

full = ModelProvider(prefix="{prefix}", factory=connect, usage="'{prefix}:ANY'", keys=("KEY_OF_IT",))
other = ModelProvider(prefix="other", factory=connect)
number = 5
"""


def connect_scripted(name: str, access: ModelAccess, clock: Clock | None) -> Model:
    return ScriptedModel(["hello"])


def install(folder: Path, prefix: str, attribute: str = "connect", package: str = "acme-models") -> None:
    """A package with an entry point, as pip leaves it."""
    module = f"{package.replace('-', '_')}_{prefix}"
    (folder / f"{module}.py").write_text(PROGRAM.replace("{prefix}", prefix), encoding="utf-8")
    info = folder / f"{package.replace('-', '_')}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n", encoding="utf-8"
    )
    entry = f"[sevenfold.models]\n{prefix} = {module}:{attribute}\n"
    (info / "entry_points.txt").write_text(entry, encoding="utf-8")


def test_a_registered_provider_connects_every_name_with_its_prefix() -> None:
    register("registered", connect_scripted, keys=("REGISTERED_KEY",))
    assert isinstance(connect_model(" registered:any thing ", ModelAccess()), ScriptedModel)
    assert to_wire_name("registered:m") == "m"
    with pytest.raises(UnknownModel, match=r"'local:FILE\.gguf'.*'registered:NAME'"):
        connect_model("never-heard-of:x", ModelAccess())


def test_its_keys_are_hidden_from_tools_and_not_shown() -> None:
    register("hides", connect_scripted, keys=("HIDES_KEY",))
    variables = {"HOME": "/h", "HIDES_KEY": "sk-secret", "ELSE": "seen"}
    assert Environment.read(variables).tool_environment() == {"HOME": "/h", "ELSE": "seen"}
    assert "sk-secret" not in repr(ModelAccess(variables=variables))


def test_what_its_models_can_do_is_known_without_connecting() -> None:
    register(
        "sized", connect_scripted, capabilities=lambda name, window: Capabilities(window=window or 5_000)
    )
    assert find_capabilities("sized:m").window == 5_000
    assert find_capabilities("sized:m", window=7_000).window == 7_000


def test_a_model_of_a_known_family_is_known_under_any_prefix() -> None:
    register("resold", connect_scripted)
    assert find_capabilities("resold:gpt-4o") == find_capabilities("openai:gpt-4o")


def test_a_prefix_has_one_provider() -> None:
    registry = ProviderRegistry([ModelProvider(prefix="one", factory=connect_scripted)])
    with pytest.raises(Mistake, match=r"'one' already has a provider.*choose another"):
        registry.add(ModelProvider(prefix="one", factory=connect_scripted))
    with pytest.raises(Mistake, match="'openai' already has"):
        register("openai", connect_scripted)


@pytest.mark.parametrize("prefix", ["", "A", "1a", "a b", "a:", "ä", "a.b"])
def test_a_prefix_is_a_plain_word(prefix: str) -> None:
    with pytest.raises(Mistake, match="cannot be the prefix"):
        register(prefix, connect_scripted)


def test_an_entry_point_is_found_when_its_prefix_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "plugged")
    monkeypatch.syspath_prepend(tmp_path)
    assert PROVIDERS.find("plugged:m", load=False) is None
    assert connect_model("plugged:m", ModelAccess()).name == "plugged:m"
    assert PROVIDERS.find("plugged:m", load=False) is not None


def test_an_entry_point_may_be_a_whole_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "whole", "full")
    monkeypatch.syspath_prepend(tmp_path)
    assert connect_model("whole:m", ModelAccess()).name == "whole:m"
    assert "KEY_OF_IT" in PROVIDERS.list_keys()
    assert "'whole:ANY'" in PROVIDERS.describe_names()


@pytest.mark.parametrize(
    ("prefix", "attribute", "why"),
    [
        ("gone", "nothing", r"cannot be loaded \(AttributeError"),
        ("broken", "connect", r"cannot be loaded \(ImportError: a part is missing"),
        ("numbered", "number", "gives 5 .* must be a function"),
        ("foreign", "other", "must be .* a ModelProvider with the prefix 'foreign'"),
    ],
)
def test_a_bad_entry_point_is_refused_with_the_name_of_its_package(
    prefix: str, attribute: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, prefix, attribute)
    if prefix == "broken":
        program = "raise ImportError('a part is missing')"
        (tmp_path / "acme_models_broken.py").write_text(program, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnknownModel, match=rf"the package acme-models 1\.2.*{why}"):
        connect_model(f"{prefix}:m", ModelAccess())
    assert PROVIDERS.find(f"{prefix}:m", load=False) is None


def test_two_packages_with_one_prefix_are_both_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "twice")
    install(tmp_path, "twice", package="other-models")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnknownModel, match=r"(?=.*acme-models 1\.2)(?=.*other-models 1\.2).*uninstall one"):
        connect_model("twice:m", ModelAccess())


def test_known_names_look_up_no_entry_points_and_load_no_other_provider() -> None:
    code = (
        "import sys; from sevenfold.models import connect_model, ModelAccess, find_capabilities;"
        "connect_model('openai:m', ModelAccess(openai_key='k'));"
        "find_capabilities('us.anthropic.claude-x:0');"
        "unwanted = {'importlib.metadata', 'sevenfold.offline', 'sevenfold.models.local'} & {*sys.modules};"
        "sys.exit(f'loaded {unwanted}' if unwanted else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8")
    assert (ran.returncode, ran.stderr) == (0, "")
