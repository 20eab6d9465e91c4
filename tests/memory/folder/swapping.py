"""A process that swaps a thing for a link to somewhere else and back, as fast as it goes, until killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from itertools import count
from pathlib import Path


def swap(path: Path, target: Path) -> None:
    away = path.with_name(f"{path.name}.away")
    for number in count():
        with contextlib.suppress(OSError):
            path.rename(away)
        with contextlib.suppress(OSError):
            path.symlink_to(target)
        if path.is_symlink():
            with contextlib.suppress(OSError):
                path.unlink()
        elif away.exists():  # the thing was made anew meanwhile: out of our way
            shutil.rmtree(path, ignore_errors=True)
            with contextlib.suppress(OSError):
                path.unlink()
        if not os.path.lexists(path):
            with contextlib.suppress(OSError):
                away.rename(path)
        if number == 0:
            print("swapping", flush=True)


if __name__ == "__main__":
    swap(Path(sys.argv[1]), Path(sys.argv[2]))
