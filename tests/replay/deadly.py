"""Work for processes of their own: it must be found by name there."""

from __future__ import annotations

import os
from pathlib import Path

from sevenfold.replay.runner import FileProgress, ReplayJob, ReplayResult, Tell


def die_of_some(job: ReplayJob, tell: Tell) -> ReplayResult:
    """Ends the whole process for files called `deadly`, as running out of memory would."""
    tell(FileProgress(job.number, 0.5, 3))
    if Path(job.found.path).name == "deadly":
        os._exit(9)
    return ReplayResult(number=job.number, path=job.found.path, recorded=os.getpid())
