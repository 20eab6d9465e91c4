"""Environments of other people's clients: one each, in the versions of pins.toml, made once and kept.

They lie in `~/.cache/sevenfold-test-clients` (or in `$SEVENFOLD_TEST_CLIENTS`), about 2 GB. A folder is
named after what is in it, so another version is another folder. `make_environments()` needs the network; a
test finds its client with `find_environment("codex")`, which does not.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

PINS = Path(__file__).with_name("pins.toml")


def find_cache() -> Path:
    named = os.environ.get("SEVENFOLD_TEST_CLIENTS")
    return Path(named) if named else Path.home() / ".cache" / "sevenfold-test-clients"


@dataclass(frozen=True)
class ClientEnvironment:
    """A folder with one client and what it needs."""

    name: str
    kind: str  # `python`, `node`, or `tools`
    packages: tuple[str, ...]
    settings: tuple[str, ...] = ()  # What else decides about the content

    @property
    def version(self) -> str:
        """The version of the first package."""
        return re.split(r"==|@", self.packages[0])[-1]

    @property
    def folder(self) -> Path:
        content = "\n".join([self.kind, sys.version, *self.packages, *self.settings])
        return find_cache() / f"{self.name}-{blake2b(content.encode(), digest_size=6).hexdigest()}"

    @property
    def is_ready(self) -> bool:
        return (self.folder / ".ready").exists()

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


def read_environments() -> dict[str, ClientEnvironment]:
    """Every environment by name; `tools` is the one that makes the others."""
    pins: dict[str, Any] = tomllib.loads(PINS.read_text(encoding="utf-8"))
    settings = (pins["newest"], *pins["override"])
    found = {"tools": ClientEnvironment("tools", "tools", tuple(pins["tools"]))}
    for kind in ("python", "node"):
        for name, packages in pins[kind].items():
            found[name] = ClientEnvironment(name, kind, tuple(packages), settings)
    return found


def find_environment(name: str) -> ClientEnvironment:
    """The environment of a client that the lane has made."""
    environment = read_environments()[name]
    if not environment.is_ready:
        raise FileNotFoundError(f"{environment.folder} is not there: run `make test-clients`")
    return environment


def make_environments() -> None:
    """Make what is missing, all at once: most of the time is downloading.

    One that cannot be made is said, and fails the tests of its client alone.
    """
    environments = read_environments()
    tools = environments.pop("tools")
    find_cache().mkdir(parents=True, exist_ok=True)
    _make(tools, tools)
    with ThreadPoolExecutor(len(environments)) as pool:
        for started in [pool.submit(_make, environment, tools) for environment in environments.values()]:
            if error := started.exception():
                print(f"an environment could not be made: {error}", file=sys.stderr)


def _make(environment: ClientEnvironment, tools: ClientEnvironment) -> None:
    with _locked(environment.folder.with_suffix(".lock")):
        if environment.is_ready:
            return
        shutil.rmtree(environment.folder, ignore_errors=True)
        {"tools": _install_tools, "python": _install_python, "node": _install_node}[environment.kind](
            environment, tools
        )
        (environment.folder / ".ready").touch()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Two checkouts that make the same environment do it one after the other."""
    with path.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install_tools(environment: ClientEnvironment, _tools: ClientEnvironment) -> None:
    venv.create(environment.folder, with_pip=True)
    _run(
        environment.python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", *environment.packages
    )


def _install_python(environment: ClientEnvironment, tools: ClientEnvironment) -> None:
    newest, *overrides = environment.settings
    uv = tools.folder / "bin" / "uv"
    _run(uv, "venv", "--quiet", "--python", sys.executable, environment.folder)
    override = environment.folder / "override.txt"
    override.write_text("\n".join(overrides), encoding="utf-8")
    # Nothing is built: the code of a package runs in its client alone, without a network.
    options = ("--quiet", "--only-binary", ":all:", "--exclude-newer", newest, "--override", override)
    _run(uv, "pip", "install", *options, "--python", environment.python, *environment.packages)


def _install_node(environment: ClientEnvironment, tools: ClientEnvironment) -> None:
    environment.folder.mkdir()
    npm = tools.folder / "bin" / "npm"
    newest = f"--before={environment.settings[0]}"
    options = ("--silent", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", newest)
    _run(npm, "install", *options, "--prefix", environment.folder, *environment.packages)


def _run(*command: str | Path) -> None:
    caches: Mapping[str, str] = {
        "UV_CACHE_DIR": str(find_cache() / "uv"),
        "UV_PYTHON_DOWNLOADS": "never",
        "npm_config_cache": str(find_cache() / "npm"),
    }
    ran = subprocess.run(
        list(map(str, command)), env={**os.environ, **caches}, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{ran.stdout}{ran.stderr}")
