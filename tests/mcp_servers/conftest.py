"""A project with a memory, and ways to serve it to real clients."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp_servers.serving import ServedProject


@pytest.fixture
def project(tmp_path: Path) -> ServedProject:
    return ServedProject(tmp_path)
