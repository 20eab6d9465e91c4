"""The report is one well-formed page that fetches nothing, runs nothing and trusts no title."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace
from replay import reports, sessions

from sevenfold.replay.policies import load_policy
from sevenfold.replay.report.charts import (
    choose_axis_steps,
    draw_scatter,
    draw_waterfall,
    escape_text,
    format_cost,
    format_duration,
    format_tokens,
    place_labels,
)
from sevenfold.replay.report.page import MOST_DRAWN, format_page
from sevenfold.replay.results import LayerFigure, ReplayCost, ReplayFigures
from sevenfold.replay.runner import ReplayResult

EMPTY = frozenset({"meta", "link", "br", "hr", "img", "input"})


class Tags(HTMLParser):
    """Holds that tags nest, and remembers them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    return reports.written(tmp_path_factory.mktemp("report")).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tags(html: str) -> Tags:
    parsed = Tags()
    parsed.feed(html)
    parsed.close()
    return parsed


def test_tags_nest_and_all_are_closed(tags: Tags) -> None:
    assert tags.open == []


def test_it_says_what_is_not_in_it_and_whose_line_is_which(html: str) -> None:
    assert "<b>Not charged</b>: the status of agents" in html
    assert "in batches and by the cheaper way" in html
    assert "150 tokens of answer, and one more with 600" in html
    assert "extraction after each turn" not in html
    assert "61.5 % on average" in html
    assert "is the line of the tool that was recorded" in html


def test_what_was_paid_is_said_to_be_of_some_sessions_where_it_is() -> None:
    some = ReplayFigures(
        cost=ReplayCost(300.0), paid=ReplayCost(100.0), compared=ReplayCost(80.0), files=3, paid_files=1
    )  # fmt: skip

    html = format_page(
        [ReplayResult(number=0, path="x", by_policy={"balanced": some})],
        [load_policy("balanced")],
        sessions.BEGAN,
    )

    assert "20.0% less than was paid in the 1 of 3 sessions that say" in html
    assert "paid, 1 of 3 sessions" in draw_waterfall("w", "x", some)


def test_nothing_is_fetched_and_nothing_runs(html: str, tags: Tags) -> None:
    names = {name for name, _ in tags.seen}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "form", "base"}
    for _, attributes in tags.seen:
        assert not any(key.startswith("on") for key in attributes)
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    assert "url(" not in html
    assert "@import" not in html


def test_a_hostile_title_is_text_and_cannot_turn_the_line_round(html: str) -> None:
    assert "<script" not in html
    assert "<img" not in html
    assert "\u202e" not in html
    assert escape_text(reports.HOSTILE, 60) in html


def test_ids_are_unique_and_every_reference_leads_somewhere(tags: Tags) -> None:
    ids = [str(a["id"]) for _, a in tags.seen if "id" in a]
    assert len(ids) == len(set(ids))
    links = {str(a["href"])[1:] for _, a in tags.seen if "href" in a}
    labels = {i for _, a in tags.seen if "aria-labelledby" in a for i in str(a["aria-labelledby"]).split()}
    assert links | labels <= set(ids)


def test_every_drawing_is_named_and_described_and_every_table_has_a_caption(html: str, tags: Tags) -> None:
    drawings = [a for name, a in tags.seen if name == "svg" and a.get("aria-hidden") != "true"]
    assert drawings
    assert all(a.get("role") == "img" and a.get("aria-labelledby") for a in drawings)
    assert html.count("<table>") == html.count("<caption>")
    assert "Under balanced the" in html


def test_it_shows_what_the_issue_asks_for(html: str) -> None:
    for heading in ("Policies", "Cost by layer", "Regret and fidelity", "Sessions", "Context over time"):
        assert f">{heading}</h2>" in html
    for word in ("cache hit", "as recorded", "really paid", "without its layers, estimated"):
        assert word in html


def test_a_file_that_could_not_be_read_is_listed_with_a_few_of_its_troubles(html: str) -> None:
    listed = html.split("What could not be read or known")[1].split("</section>")[0]
    assert listed.count("<li>") == 1 + 5 + 1
    assert "and 4 more" in listed


def test_only_the_costliest_of_many_sessions_are_drawn_and_all_are_listed(tmp_path: Path) -> None:
    one = reports.replayed(tmp_path)[0]
    many = [replace(one, number=n) for n in range(MOST_DRAWN + 20)]

    html = format_page(many, [load_policy("balanced")], sessions.BEGAN)

    assert len(re.findall(r'<figure id="s\d+">', html)) == MOST_DRAWN
    assert f"The {MOST_DRAWN} sessions that cost most, of {MOST_DRAWN + 20}." in html
    table = html.split("<caption>Each session, under")[1].split("</table>")[0]
    assert table.count("<tr>") == 1 + MOST_DRAWN + 20


def test_a_page_without_a_single_session_is_still_a_page() -> None:
    broken = ReplayResult(number=0, path="x", errors=("no",))

    html = format_page([broken], [load_policy("balanced")], sessions.BEGAN)

    parsed = Tags()
    parsed.feed(html)
    assert parsed.open == []
    assert "No session could be replayed" in html


def test_a_waterfall_goes_from_no_layers_to_what_it_costs_with_them() -> None:
    layers = {"compaction": LayerFigure(2, 500, 900.0, 100.0), "notes": LayerFigure()}

    svg = draw_waterfall(
        "w", "mine", ReplayFigures(cost=ReplayCost(1_000.0), paid=ReplayCost(1_500.0), layers=layers)
    )

    told = svg.split("<desc")[1].split("</desc>")[0]
    assert "without its layers, estimated 1.8k, compaction saves −900, compaction costs +100" in told
    assert "simulated 1k, really paid 1.5k" in told
    assert "notes" not in told


def test_numbers_are_short() -> None:
    assert [format_tokens(n) for n in (0, 950, 12_345, 2_000_000)] == ["0", "950", "12.3k", "2M"]
    assert [format_duration(s) for s in (5, 600, 7_200, 400_000)] == ["5 s", "10 min", "2.0 h", "5 days"]
    assert choose_axis_steps(167_000) == [0, 50_000, 100_000, 150_000]
    assert choose_axis_steps(0) == [0]
    assert format_cost(ReplayCost(5_000.0)) == "5k"
    assert format_cost(ReplayCost(1.0, 1_234.5, "EUR")) == "EUR 1,234.50"


def test_what_is_saved_stands_under_what_it_would_cost_and_not_under_what_was_paid() -> None:
    one = ReplayFigures(
        cost=ReplayCost(80.0), paid=ReplayCost(100.0), compared=ReplayCost(80.0), files=1, paid_files=1
    )

    html = format_page(
        [ReplayResult(number=0, path="x", by_policy={"balanced": one})],
        [load_policy("balanced")],
        sessions.BEGAN,
    )

    ours, paid = html.split("<dt>simulated cost</dt>")[1].split("<dt>really paid</dt>")
    assert "20.0% less than was paid" in ours
    assert "less than" not in paid.split("</div>")[0]


@pytest.mark.parametrize("number", [5, 12])
def test_names_in_the_scatter_lie_neither_on_each_other_nor_on_a_dot(number: int) -> None:
    dots = [(60.0 + 3 * n, 100.0 + 2 * n) for n in range(number - 1)] + [(400.0, 20.0)]
    names = [f"balanced without {n}" for n in range(number)]

    places = place_labels(dots, names, (50.0, 10.0, 470.0, 300.0))

    boxes = [place.box for place in places]
    assert all(box[0] >= 50 and box[1] >= 10 and box[2] <= 470 and box[3] <= 300 for box in boxes)
    boxes += [(x - 5, y - 5, x + 5, y + 5) for x, y in dots]
    for n, (left, top, right, bottom) in enumerate(boxes[:number]):
        for other in boxes[n + 1 :]:
            apart = right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
            assert apart


def test_policies_that_come_out_alike_have_one_dot_with_all_their_names_behind_it() -> None:
    alike = ReplayFigures(cost=ReplayCost(80.0), paid=ReplayCost(100.0), turns=9)
    other = ReplayFigures(cost=ReplayCost(40.0), paid=ReplayCost(100.0), turns=9)

    svg = draw_scatter({"one": alike, "two": alike, "three": alike, "far": other})

    assert svg.count("<circle") == 2
    assert ">one and 2 more</text>" in svg
    assert ">far</text>" in svg
    assert "two: 80.0 % of paid" in svg.split("<circle")[1]
