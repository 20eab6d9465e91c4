"""How much memory a replay takes: some times what the largest file has, whatever is done to it.

Each is measured in a process of its own, as memory that was given back is not always seen to be.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MEGABYTE = 1 << 20
MOST = 500 * MEGABYTE
"""For a session of 100 megabytes, with everything that Python itself needs."""


def weighed(folder: Path, megabytes: int, times: int = 1, processes: int = 1) -> dict[str, Any]:
    script = Path(__file__).with_name("weighing.py")
    given = [str(folder), str(megabytes * MEGABYTE), str(times), str(processes)]
    done = subprocess.run(
        [sys.executable, str(script), *given], capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_session_takes_some_times_its_size_however_often_it_is_compacted(tmp_path: Path) -> None:
    found = weighed(tmp_path, 10)

    grown = found["peaks"][0] - found["before"]
    assert found["requests"] > 300
    assert grown < 6 * found["bytes"], f"{grown / found['bytes']:.1f} times its size"


def test_a_session_that_is_done_is_forgotten(tmp_path: Path) -> None:
    found = weighed(tmp_path, 2, times=5)

    _, second, *_, last = found["peaks"]
    assert last - second < found["bytes"]


@pytest.mark.soak
def test_a_session_of_100_megabytes_fits_into_500(tmp_path: Path) -> None:
    found = weighed(tmp_path, 100)

    assert found["peaks"][0] < MOST, f"{found['peaks'][0] / MEGABYTE:.0f} MB"


@pytest.mark.soak
def test_a_gigabyte_of_sessions_takes_no_more_than_the_largest_of_them(tmp_path: Path) -> None:
    found = weighed(tmp_path, 25, times=40, processes=2)

    assert found["others"] < MOST / 2, f"{found['others'] / MEGABYTE:.0f} MB"
    assert found["peaks"][-1] - found["before"] < 20 * MEGABYTE
