"""Memories that a team shares: the folder `team/`, kept the same everywhere through a git repository.

Read `sync.py` first: one sync from beginning to end. People and programs see plain files; the git
side lies with the memory's state and is never checked out.
"""

from __future__ import annotations

from typing import Final

STATE: Final = "team"  # The folder in the memory's state: the bare repository and what is known of the team
