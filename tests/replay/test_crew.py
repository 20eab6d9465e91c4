"""Several processes at a time: every file is answered for, also when a process dies of one."""

from __future__ import annotations

import multiprocessing
import os
from contextlib import closing

import pytest
from replay.deadly import die_of_some

from sevenfold.recordings.finder import ReplayFile
from sevenfold.replay.runner import LOST, FileProgress, ReplayJob, replay_files


def jobs(*names: str) -> list[ReplayJob]:
    return [ReplayJob(n, ReplayFile(name), ()) for n, name in enumerate(names)]


@pytest.mark.parametrize("processes", [1, 2])
def test_every_file_is_answered_for(processes: int) -> None:
    done = list(replay_files(jobs("a", "b", "c", "d", "e"), processes, die_of_some))

    assert sorted(one.number for one in done) == [0, 1, 2, 3, 4]
    here = {one.recorded == os.getpid() for one in done}
    assert here == {processes == 1}


@pytest.mark.parametrize("processes", [1, 2])
def test_it_is_told_how_far_each_file_is(processes: int) -> None:
    heard: list[FileProgress] = []

    done = list(replay_files(jobs("a", "b", "c"), processes, die_of_some, heard.append))

    assert len(done) == 3
    assert sorted(one.number for one in heard) == [0, 1, 2]
    assert {(one.share, one.requests) for one in heard} == {(0.5, 3)}


@pytest.mark.real
def test_a_process_that_dies_takes_one_file_with_it_and_the_rest_goes_on() -> None:
    done = list(replay_files(jobs("a", "deadly", "b", "deadly", "c"), 2, die_of_some))

    assert {one.path: one.errors for one in done if one.path != "deadly"} == {"a": (), "b": (), "c": ()}
    assert [one.errors for one in done if one.path == "deadly"] == [(LOST,), (LOST,)]


@pytest.mark.real
def test_whoever_stops_asking_leaves_no_process_behind() -> None:
    with closing(replay_files(jobs("a", "b", "c", "d"), 2, die_of_some)) as answers:
        next(answers)

    assert multiprocessing.active_children() == []
