"""The drawing of a session has a place for each of its requests, the first and the last ones too."""

from __future__ import annotations

import re
from itertools import pairwise

from sevenfold.replay.report.charts import LEFT, RIGHT, WIDTH, draw_chart
from sevenfold.replay.results import ChartPoint, ReplayFigures


def drawn(turns: int, *more: ChartPoint) -> str:
    points = [ChartPoint(n, float(n), "turn", 1_000, 900) for n in range(turns)]
    figures = ReplayFigures(turns=turns, points=(*points, *more))
    return draw_chart("c", "a session", {"sevenfold": figures}, "sevenfold")


def bars(svg: str) -> list[tuple[float, float]]:
    found = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"[^>]* class="hit"', svg)
    return [(float(x), float(x) + float(width)) for x, width in found]


def test_thirteen_requests_are_called_thirteen() -> None:
    svg = drawn(13)

    assert ">request 1</text>" in svg
    assert ">13</text>" in svg
    assert "the 13 requests of this session" in svg


def test_no_bar_lies_on_another_and_all_are_inside() -> None:
    for turns in (1, 2, 13, 100):
        places = bars(drawn(turns))
        assert len(places) == turns
        assert places[0][0] >= LEFT
        assert places[-1][1] <= WIDTH - RIGHT
        assert all(end <= begin for (_, end), (begin, _) in pairwise(places))


def test_one_request_is_in_the_singular() -> None:
    assert "the 1 request of this session" in drawn(1)


def test_what_comes_after_the_last_request_belongs_to_it() -> None:
    svg = drawn(13, ChartPoint(13, 99.0, "extraction", 1_000, 900))

    assert "request 13: extraction: a request for extraction" in svg
    assert "the 13 requests" in svg
