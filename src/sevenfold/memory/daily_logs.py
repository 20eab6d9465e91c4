"""Daily logs, `logs/2026/03/2026-03-05.md`: long-lived sessions note there what is worth keeping.

The agent's own Write and Edit append to them; a dream makes memories of them.
"""

from __future__ import annotations

import datetime
import re
from typing import Final

from sevenfold.memory.folder.names import LOGS

_FILE: Final = re.compile(rf"{LOGS}/(\d{{4}})/(\d{{2}})/(\1-\2-\d{{2}})\.md", re.ASCII)


def parse_log_day(file: str) -> str:
    """The day of a log, as `2026-03-05`; empty for any other file."""
    found = _FILE.fullmatch(file)
    if found is None:
        return ""
    try:
        return datetime.date.fromisoformat(found[3]).isoformat()
    except ValueError:
        return ""
