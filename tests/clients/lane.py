"""`make test-clients`: make the clients' environments, go offline, run the tests in tests/clients.

Arguments go to pytest: `make test-clients ARGS="-k codex"`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from clients.environments import make_environments
from clients.loopback import can_enter_loopback, enter_loopback


def main() -> None:
    # Elsewhere the tests are skipped and say why.
    if can_enter_loopback():
        make_environments()
        enter_loopback()
    words = sys.argv[1:]
    if not any(Path(word.partition("::")[0]).exists() for word in words):
        words.append("tests/clients")
    command = [sys.executable, "-m", "pytest", "-m", "clients", *words]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
