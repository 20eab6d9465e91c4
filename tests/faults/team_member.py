"""A member of a team who syncs when told to, and may be killed at any moment.

python team_member.py TOP NAME      prints `ready`; each line on stdin is a sync, answered by `done`
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from memory.team.clones import Clone

from sevenfold.memory.guard.secrets import find_secrets


def main() -> None:
    clone = Clone(Path(sys.argv[1]), sys.argv[2])
    find_secrets("")  # reads the table before the clock runs
    print("ready", flush=True)
    for _ in sys.stdin:
        synced = clone.team.sync()
        print(f"done {synced.offline or ''}", flush=True)


if __name__ == "__main__":
    main()
