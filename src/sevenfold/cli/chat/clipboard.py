"""The image in the clipboard, read with the program that the desktop has for it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from sevenfold.storage.files import make_private_dir, write_new

PATIENCE: Final = 3.0  # Seconds that such a program may take
LARGEST: Final = 20 << 20  # Bytes
READERS: Final = (  # Each prints a PNG, or fails
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
PNG: Final = b"\x89PNG\r\n\x1a\n"
NO_PROGRAM: Final = "an image is pasted with wl-paste, xclip or pngpaste, and none of them is installed"
NO_IMAGE: Final = "there is no image in the clipboard"


def save_clipboard_image(folder: Path) -> tuple[Path | None, str]:
    """The file that the image of the clipboard was written to, or None and the reason."""
    known = [argv for argv in READERS if shutil.which(argv[0])]
    for argv in known:
        try:
            ran = subprocess.run(argv, capture_output=True, timeout=PATIENCE, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if ran.stdout.startswith(PNG) and len(ran.stdout) <= LARGEST:
            make_private_dir(folder)
            number = 1
            while not write_new(path := folder / f"pasted-{number}.png", ran.stdout):
                number += 1
            return path, ""
    return None, NO_IMAGE if known else NO_PROGRAM
