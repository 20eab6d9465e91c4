"""`python -m sevenfold` is `sevenfold`."""

from __future__ import annotations

import sys

from sevenfold.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
