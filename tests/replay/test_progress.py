"""One line that says how far it is, how fast, and how long it takes."""

from __future__ import annotations

import io

from sevenfold.replay.runner import CLEAR, ReplayProgress


def test_it_says_rate_and_remaining_time() -> None:
    now, out = [100.0], io.StringIO()
    progress = ReplayProgress(out, files=4, size=4_000, now=lambda: now[0])
    progress.start()
    assert out.getvalue() == f"{CLEAR}replaying: 0 of 4 files"

    now[0] += 10
    progress.add_file(1_000, 250)

    assert progress.format_line() == "replaying: 1 of 4 files · 25 requests/s · 30 s left"


def test_long_times_are_in_minutes_and_hours() -> None:
    now = [0.0]
    progress = ReplayProgress(io.StringIO(), files=9, size=1_000_000, now=lambda: now[0])
    progress.start()
    now[0] = 60
    progress.add_file(100_000, 1)
    assert progress.format_line().endswith("9 min left")
    now[0] = 6_000
    assert progress.format_line().endswith("15.0 h left")


def test_it_is_not_drawn_for_every_file_and_leaves_the_line_clean() -> None:
    now, out = [0.0], io.StringIO()
    progress = ReplayProgress(out, files=900, size=900, now=lambda: now[0])
    progress.start()
    for _ in range(800):
        now[0] += 0.001
        progress.add_file(1, 1)
    drawn = out.getvalue().count(CLEAR)
    progress.end()

    assert drawn < 12
    assert out.getvalue().endswith(CLEAR)


def test_the_last_file_leaves_no_time() -> None:
    now = [0.0]
    progress = ReplayProgress(io.StringIO(), files=1, size=10, now=lambda: now[0])
    progress.start()
    now[0] = 1
    progress.add_file(10, 5)

    assert progress.format_line() == "replaying: 1 of 1 file · 5 requests/s"


def test_one_file_has_a_rate_and_a_remaining_time_before_it_is_done() -> None:
    now, out = [0.0], io.StringIO()
    progress = ReplayProgress(out, files=1, size=1_000, now=lambda: now[0])
    progress.start()
    assert out.getvalue() == f"{CLEAR}replaying: 0 of 1 file"

    now[0] = 10
    progress.update_file(0, 250.0, 50)
    assert out.getvalue().endswith("replaying: 0 of 1 file · 25% · 5 requests/s · 30 s left")

    now[0] = 40
    progress.add_file(1_000, 220, 0)
    assert progress.format_line() == "replaying: 1 of 1 file · 6 requests/s"
