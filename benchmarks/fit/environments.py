"""The other packages' environments: one each, made once with pinned versions, kept in a cache folder."""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
CACHE: Final = Path.home() / ".cache" / "sevenfold-bench"
INSTALL_SECONDS: Final = 900
RUN_SECONDS: Final = 240


class Peer(msgspec.Struct, frozen=True):
    """Another package's step, and how it is set here."""

    name: str
    script: str
    environment: str
    package: str
    imports: str
    settings: str


class Peers(msgspec.Struct, frozen=True):
    environments: dict[str, dict[str, list[str]]]
    peers: list[Peer]


class Missing(Exception):
    """A peer cannot be measured here; says why."""


def peers() -> Peers:
    raw = tomllib.loads((HERE / "peers.toml").read_text(encoding="utf-8"))
    return msgspec.convert(raw, Peers)


def python_of(name: str, packages: list[str], cache: Path, *, make: bool) -> Path:
    """The interpreter of this environment, made first if that is allowed; raises `Missing`."""
    pins = "\n".join(packages)
    folder = cache / f"{name}-{hashlib.sha256(pins.encode()).hexdigest()[:12]}"
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    ready = folder / "ready"
    if ready.exists():
        return python
    if not make:
        raise Missing("no environment yet: run without --quick to make it")
    print(f"making the environment of {name} in {folder}", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = folder / "packages.txt"
    wanted.write_text(pins, encoding="utf-8")
    _do([sys.executable, "-m", "venv", str(folder)], "no environment")
    _do([str(python), "-m", "pip", "install", "-q", "-r", str(wanted)], "not installed")
    ready.touch()
    return python


def _do(command: list[str], otherwise: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired as late:
        raise Missing(f"{otherwise}: not done after {INSTALL_SECONDS} s") from late
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        raise Missing(f"{otherwise}: {said[-1] if said else error}") from error


def _environ() -> dict[str, str]:
    """Without keys and without what would send traces somewhere."""
    kept = {k: v for k, v in os.environ.items() if "API_KEY" not in k and "TRACING" not in k}
    return {**kept, "PYTHONNOUSERSITE": "1"}


def measured(peer: Peer, python: Path, workload: Path, trigger: int, repeat: int) -> Any:
    """What the peer's script wrote; raises `Missing` when it failed."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output.json"
        command = [str(python), "-m", f"benchmarks.fit.peers.{peer.script}"]
        command += [str(workload), str(output), f"--trigger={trigger}", f"--repeat={repeat}"]
        try:
            subprocess.run(
                command,
                check=True,
                cwd=ROOT,
                env=_environ(),
                capture_output=True,
                text=True,
                timeout=RUN_SECONDS,
            )
        except subprocess.TimeoutExpired as late:
            raise Missing(f"not done after {RUN_SECONDS} s") from late
        except subprocess.CalledProcessError as error:
            said = error.stderr.strip().splitlines()
            raise Missing(f"failed: {said[-1] if said else error}") from error
        return json.loads(output.read_text(encoding="utf-8"))


def import_seconds(python: str | Path, imports: str, times: int) -> float:
    """The median time of an import in a fresh interpreter; one run before warms the disk."""
    code = f"import time; b = time.perf_counter(); {imports}; print(time.perf_counter() - b)"
    took = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(times + 1):
            done = subprocess.run(
                [str(python), "-c", code],
                check=True,
                cwd=folder,
                env=_environ(),
                capture_output=True,
                text=True,
            )
            took.append(float(done.stdout))
    return statistics.median(took[1:])
