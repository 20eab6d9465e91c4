"""What is known of a view, worked out step by step, is what a look at all of it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layers.l2_microcompaction.talks import Talk, text_of

from sevenfold.core.messages import (
    Image,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    assistant,
    user,
)
from sevenfold.core.transcript import Replace, Reply, Results, Transcript, Undo, Unthink, View
from sevenfold.layers.l2_microcompaction.candidates import (
    CLEARED,
    OFTEN,
    RETRIEVERS,
    STORED,
    WRITERS,
    ViewScan,
    describe_subject,
    find_call_path,
    format_marker,
    parse_marker,
)
from sevenfold.settings.layers import CLEARABLE

MEMORY = Path("/home/someone/.sevenfold/own/a/memory")


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    return Talk(tmp_path)


def scan_of(talk: Talk, *memory: Path) -> ViewScan:
    scan = ViewScan(CLEARABLE, memory)
    scan.follow(talk.view)
    return scan


def ids(scan: ViewScan) -> list[str]:
    return [one.use.id for one in scan.found]


def clear(talk: Talk, *uses: str, file: str = "/r/cleared-1.txt") -> None:
    """As the layer does it, ten lines each."""
    shown = {use: format_marker(1_000, file, 2 + 11 * n, 10) for n, use in enumerate(uses)}
    talk.log.add(Results(shown), by="Microcompaction")


# --- what may go ----------------------------------------------------------------------------------------


def test_results_of_the_listed_tools_may_go_and_no_others(talk: Talk) -> None:
    for tool in (*CLEARABLE, "mcp__github__search", "mcp__Read", "Agent", "Task", "SendMessage"):
        talk.call(tool, 4_000)
    talk.call("read", 4_000)

    scan = scan_of(talk)

    assert [one.use.name for one in scan.found] == list(CLEARABLE)
    assert all(one.tokens == 1_020 for one in scan.found)
    assert scan.clearable == 1_020 * len(CLEARABLE)


def test_a_setting_names_other_tools(talk: Talk) -> None:
    talk.call("Read", 4_000)
    talk.call("Fetch", 4_000)
    scan = ViewScan(("Fetch",), ())
    scan.follow(talk.view)

    assert [one.use.name for one in scan.found] == ["Fetch"]


@pytest.mark.parametrize(
    "content",
    [
        (Text("a picture"), Image({"type": "base64", "data": "AAAA"})),
        (Text("found"), Opaque("search_result", '{"type":"search_result","x":1}')),
        f"{STORED}>\nToo long to show here",
        f"{CLEARED}9 tokens, kept in /r/x.txt lines 1-2]",
    ],
    ids=["image", "a block nobody knows", "stored by layer 1", "cleared already"],
)
def test_what_a_text_file_cannot_hold_and_what_is_short_already_stays(talk: Talk, content: Any) -> None:
    talk.call("Read", content)
    assert ids(scan_of(talk)) == []


def test_several_texts_are_one_text(talk: Talk) -> None:
    talk.call("Read", (Text("one "), Text("two")))
    assert ids(scan_of(talk)) == ["t1"]


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("Read", {"file_path": f"{MEMORY}/MEMORY.md"}),
        ("Read", {"file_path": f"{MEMORY}/deep/er/topic.md"}),
        ("Read", {"file_path": f"{MEMORY}/../memory/./topic.md"}),
        ("Read", {"file_path": "/home/someone/x/../.sevenfold/own/a/memory/topic.md"}),
        ("Read", {"file_path": "~/.sevenfold/own/a/memory/topic.md"}),
        ("Read", {"file_path": "../../.sevenfold/own/a/memory/topic.md"}),
        ("Read", {"file_path": ".sevenfold/own/a/memory/topic.md"}),
        ("Read", {"file_path": "memory/topic.md"}),
        ("Read", {"file_path": "./memory/../memory/topic.md"}),
        ("Grep", {"pattern": "port", "path": str(MEMORY)}),
        ("Grep", {"pattern": "port", "path": f"{MEMORY}/"}),
        ("Glob", {"pattern": f"{MEMORY}/*.md"}),
        ("Bash", {"command": f"cat {MEMORY}/MEMORY.md | head"}),
        ("Bash", {"command": f'cat "{MEMORY}/MEMORY.md"; ls'}),
        ("Bash", {"command": "cat ~/.sevenfold/own/a/memory/MEMORY.md"}),
        ("Edit", {"file_path": f"{MEMORY}/MEMORY.md", "old_string": "a", "new_string": "b"}),
    ],
)
def test_what_was_read_from_memory_stays_however_it_was_named(
    talk: Talk, tool: str, args: dict[str, Any]
) -> None:
    talk.call(tool, 4_000, **args)

    assert ids(scan_of(talk, MEMORY)) == []
    assert ids(scan_of(talk)) == ["t1"], "it stays because of the folder"


@pytest.mark.parametrize(
    "path",
    [
        "/home/someone/.sevenfold/own/a/memory2/x.md",
        "/home/someone/.sevenfold/own/a/memory.md",
        f"{MEMORY}/../notes.md",
        "/elsewhere/memory/x.md",
        "src/memory.py",
        "topic.md",
        "",
    ],
)
def test_a_path_that_only_looks_like_memory_may_go(talk: Talk, path: str) -> None:
    talk.call("Read", 4_000, file_path=path)
    assert ids(scan_of(talk, MEMORY)) == ["t1"]


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("Read", {"file_path": "/home/someone/.claude/projects/-home-someone-shop/memory/MEMORY.md"}),
        ("Read", {"file_path": "/home/someone/.sevenfold/projects/shop-1a2b/memory/deploy.md"}),
        ("Read", {"file_path": "/work/shop/.claude/agent-memory/reviewer/MEMORY.md"}),
        ("Read", {"file_path": r"C:\Users\someone\.claude\projects\shop\memory\MEMORY.md"}),
        ("Bash", {"command": "cat ~/.claude/projects/*/memory/*.md | head"}),
        ("Read", {"file_path": ".claude/agent-memory-local/reviewer/MEMORY.md"}),
        ("Read", {"file_path": "/home/someone/.config/claude/projects/shop/memory/deploy.md"}),
    ],
)
def test_memory_stays_in_a_loop_that_names_no_folder(talk: Talk, tool: str, args: dict[str, Any]) -> None:
    talk.call(tool, 4_000, **args)

    assert ids(scan_of(talk)) == []


@pytest.mark.parametrize(
    "path",
    [
        "/w/projects/shop/memory.py",
        "/w/projects/memory/x.py",
        "/w/memory/x.py",
        "/w/projects/kernel/memory/alloc.c",
        "/w/agent-memory/store.py",
    ],
)
def test_a_project_about_memory_is_none(talk: Talk, path: str) -> None:
    talk.call("Read", 4_000, file_path=path)

    assert ids(scan_of(talk)) == ["t1"]


def test_a_memory_folder_behind_a_link_is_found_by_both_its_names(talk: Talk, tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    (real / "memory").mkdir(parents=True)
    link.symlink_to(real)
    talk.call("Read", 4_000, file_path=f"{link}/memory/a.md")
    talk.call("Read", 4_000, file_path=f"{real}/memory/a.md")

    assert ids(scan_of(talk, link / "memory")) == []


def test_an_id_that_comes_again_means_the_last_result_of_that_name(talk: Talk) -> None:
    """An edit shows something else for the newest of them: the older one is out of reach."""
    talk.call("Read", 4_000, id="call_0", file_path="/a")
    talk.call("Read", 8_000, id="call_1", file_path="/b")
    talk.call("Bash", 12_000, id="call_0")
    scan = scan_of(talk)

    assert [(one.use.id, one.tokens) for one in scan.found] == [("call_1", 2_020), ("call_0", 3_020)]
    assert all(talk.view.result_at(one.use.id) == one.at for one in scan.found)
    assert scan.clearable == 5_040


def test_what_was_cleared_under_an_id_that_came_again_is_still_known(talk: Talk) -> None:
    talk.call("Read", 4_000, id="call_0", file_path="/a")
    scan = scan_of(talk)
    clear(talk, "call_0")
    talk.call("Read", 4_000, id="call_0", file_path="/b")
    scan.follow(talk.view)
    talk.call("Read", 4_000, id="call_1", file_path="/b")
    assert again(talk, scan) == [], "it is shown"
    talk.call("Read", 4_000, id="call_2", file_path="/a")

    assert again(talk, scan) == [("call_2", 1_000)]
    assert scan.cleared == 1


# --- what is asked for again ----------------------------------------------------------------------------


def again(talk: Talk, scan: ViewScan) -> list[tuple[str, int]]:
    return [(one.use.id, one.tokens) for one in scan.follow(talk.view)]


def test_asking_for_what_was_cleared_is_told_once(talk: Talk) -> None:
    talk.call("Read", 4_000, file_path="/a")
    scan = scan_of(talk)
    clear(talk, "t1")
    assert again(talk, scan) == []
    talk.call("Read", 4_000, file_path="/a")

    assert again(talk, scan) == [("t2", 1_000)]
    assert again(talk, scan) == []


def test_asking_once_more_for_what_is_in_view_again_is_not_asking_for_what_was_cleared(talk: Talk) -> None:
    talk.call("Read", 4_000, file_path="/a")
    scan = scan_of(talk)
    clear(talk, "t1")
    talk.call("Read", 4_000, file_path="/a")
    assert again(talk, scan) == [("t2", 1_000)]
    talk.call("Read", 4_000, file_path="/a")

    assert again(talk, scan) == []


def test_an_older_copy_that_was_cleared_does_not_count_while_a_newer_one_is_shown(talk: Talk) -> None:
    talk.call("Read", 4_000, file_path="/a")
    talk.call("Read", 4_000, file_path="/a")
    scan = scan_of(talk)
    clear(talk, "t1")
    talk.call("Read", 4_000, file_path="/a")

    assert again(talk, scan) == []


def test_a_file_that_was_changed_meanwhile_is_read_anew(talk: Talk) -> None:
    talk.call("Read", 4_000, file_path="/a")
    talk.call("Read", 4_000, file_path="/b")
    scan = scan_of(talk)
    clear(talk, "t1", "t2")
    talk.call("Edit", "done", file_path="/a", old_string="x", new_string="y")
    talk.call("Read", 4_000, file_path="/a")
    talk.call("Read", 4_000, file_path="/b")

    assert again(talk, scan) == [("t5", 1_000)]


def test_a_change_before_the_file_was_read_last_does_not_excuse(talk: Talk) -> None:
    talk.call("Read", 4_000, file_path="/a")
    talk.call("Write", "done", file_path="/a")
    talk.call("Read", 4_000, file_path="/a")
    scan = scan_of(talk)
    clear(talk, "t3", file="/r/cleared-3.txt")
    scan.follow(talk.view)
    clear(talk, "t1", file="/r/cleared-1.txt")
    talk.call("Read", 4_000, file_path="/a")

    assert again(talk, scan) == [("t4", 1_000)]


def test_commands_repeat_by_nature_and_another_part_of_a_file_is_something_else(talk: Talk) -> None:
    talk.call("Bash", 4_000, command="make test")
    talk.call("Read", 4_000, file_path="/a", offset=1)
    scan = scan_of(talk)
    clear(talk, "t1", "t2")
    talk.call("Bash", 4_000, command="make test")
    talk.call("Read", 4_000, file_path="/a", offset=2_001)

    assert again(talk, scan) == []


def test_the_order_of_arguments_does_not_matter(talk: Talk) -> None:
    talk.call("Grep", 4_000, pattern="x", path="/a")
    scan = scan_of(talk)
    clear(talk, "t1")
    talk.call("Grep", 4_000, path="/a", pattern="x")

    assert again(talk, scan) == [("t2", 1_000)]


@pytest.mark.parametrize(
    ("args", "tokens"),
    [
        ({}, 2_000),
        ({"offset": 2, "limit": 10}, 1_000),
        ({"offset": 13, "limit": 10}, 1_000),
        ({"offset": 11, "limit": 3}, 2_000),
        ({"offset": 20}, 1_000),
        ({"limit": 5}, 1_000),
        ({"offset": "x", "limit": None}, 2_000),
        ({"offset": 30}, None),
        ({"limit": 1}, None),
    ],
)
def test_reading_the_file_that_a_marker_names_is_asking_again(
    talk: Talk, args: dict[str, Any], tokens: int | None
) -> None:
    talk.call("Read", 4_000, file_path="/a")
    talk.call("Bash", 4_000)
    scan = scan_of(talk)
    clear(talk, "t1", "t2", file="/r/cleared-2.txt")
    talk.call("Read", 4_000, file_path="/r/cleared-2.txt", **args)

    assert again(talk, scan) == ([("t3", tokens)] if tokens else [])


def test_what_was_read_back_from_there_stays(talk: Talk) -> None:
    """Else it would be cleared into another file, read from there, cleared, and so on."""
    talk.call("Read", 4_000, file_path="/a")
    scan = scan_of(talk)
    clear(talk, "t1", file="/r/cleared-1.txt")
    talk.call("Read", 4_000, file_path="/r/cleared-1.txt", offset=2, limit=10)
    talk.call("Read", 4_000, file_path="/b")
    scan.follow(talk.view)

    assert ids(scan) == ["t3"]


def test_what_happened_before_we_looked_was_told_then(talk: Talk) -> None:
    talk.call("Read", 4_000, file_path="/a")
    clear(talk, "t1")
    talk.call("Read", 4_000, file_path="/a")
    scan = ViewScan(CLEARABLE, ())

    assert again(talk, scan) == []
    clear(talk, "t2", file="/r/cleared-2.txt")
    talk.call("Read", 4_000, file_path="/a")
    assert again(talk, scan) == [("t3", 1_000)]


def test_what_a_layer_restores_nobody_has_asked_for(talk: Talk) -> None:
    talk.call("Read", 4_000, file_path="/a")
    scan = scan_of(talk)
    clear(talk, "t1")
    talk.answer()
    restored = Message("user", (ToolResult("r", "restored"),))
    by = (user("so far"), assistant(ToolUse("r", "Read", {"file_path": "/a"})), restored)
    talk.log.add(Replace(talk.view[-1].id, talk.view[-1].id, by), by="compaction")

    assert again(talk, scan) == []
    assert scan.asked_again.total() == 0


def test_what_was_asked_for_twice_again_is_a_candidate_no_more(talk: Talk) -> None:
    scan = ViewScan(CLEARABLE, ())
    for n in range(1, 1 + OFTEN):
        talk.call("Read", 4_000, file_path="/a")
        scan.follow(talk.view)
        assert ids(scan) == [f"t{n}"]
        clear(talk, f"t{n}", file=f"/r/cleared-{n}.txt")
        scan.follow(talk.view)
    talk.call("Read", 4_000, file_path="/a")
    scan.follow(talk.view)

    assert ids(scan) == []
    assert scan.clearable == 0


def test_an_older_copy_of_what_was_asked_for_twice_again_is_none_either(talk: Talk) -> None:
    talk.call("Read", 4_000, file_path="/a")
    scan = scan_of(talk)
    for n in range(2, 3 + OFTEN):
        talk.call("Read", 4_000, file_path="/a")
        scan.follow(talk.view)
        clear(talk, f"t{n}", file=f"/r/cleared-{n}.txt")
        scan.follow(talk.view)

    assert scan.asked_again.total() == OFTEN
    assert ids(scan) == []


def test_what_is_shown_again_is_a_candidate_again_and_what_was_read_back_too(talk: Talk) -> None:
    talk.call("Read", 4_000, file_path="/a")
    scan = scan_of(talk)
    [edit] = talk.log.add(Results({"t1": format_marker(9, "/r/cleared-1.txt", 2, 10)}))
    talk.call("Read", 4_000, file_path="/r/cleared-1.txt")
    scan.follow(talk.view)
    assert ids(scan) == []
    talk.log.add(Undo(frozenset({edit})))
    scan.follow(talk.view)
    assert ids(scan) == ["t1", "t2"]
    talk.log.add(Results({"t1": format_marker(9, "/r/cleared-1.txt", 2, 10)}))
    scan.follow(talk.view)

    assert ids(scan) == []


# --- what may stand in a result -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["/r/a b/cleared-1.txt", "/r/, kept in x/cleared-1.txt", "c.txt"])
def test_a_marker_says_where_it_is_kept(name: str) -> None:
    found = parse_marker(format_marker(12_345, name, 1_234, 10_000))
    assert found is not None
    assert (found.file, found.first, found.last) == (Path(name).name, 1_234, 11_233)


@pytest.mark.parametrize(
    "text",
    [
        CLEARED,
        CLEARED + "9" * 5_000,
        CLEARED + "9" * 5_000 + " tokens, kept in x lines 1-2]",
        CLEARED + "1 tokens, kept in x lines " + "9" * 5_000 + "-2]",
        CLEARED + ", kept in a" * 20_000,
        CLEARED + "² tokens, kept in x lines ²-³]",
        CLEARED + "1 tokens, kept in \0 lines 1-2]",
    ],
    ids=["bare", "digits", "tokens", "line", "again and again", "no digits", "nul"],
)
def test_a_result_that_only_begins_like_a_marker_does_no_harm(talk: Talk, text: str) -> None:
    talk.call("Bash", text)
    talk.call("Read", 4_000, file_path="/a")
    scan = scan_of(talk)

    assert ids(scan) == ["t2"]
    assert scan.cleared == 1


# --- step by step, and all at once ----------------------------------------------------------------------

KINDS = [
    *("call", "call", "call", "call", "say", "answer", "clear", "clear", "again", "back", "edit"),
    *("show", "replace", "snip", "unthink", "undo", "resume", "fork", "follow"),
]
OPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 60), st.integers(0, 60)), min_size=12, max_size=60
)
TOOLS = ["Read", "Read", "Grep", "Bash", "Edit", "mcp__x"]


class Following:
    """A log to which anything may happen, and a scan that follows it now and then."""

    def __init__(self) -> None:
        self.disk: list[bytes] = []
        self.log = Transcript(lambda: 0.0, self.disk.append)
        self.log.add(user("begin"))
        self.scan = ViewScan(CLEARABLE, (MEMORY,))
        self.scan.follow(self.log.view)
        self.told: list[str] = []
        self.due: list[str] = []

    @property
    def view(self) -> View:
        return self.log.view

    def follow(self) -> None:
        self.told += [one.use.id for one in self.scan.follow(self.view)]

    def use(self, tool: str, **args: Any) -> None:
        n = len(self.log.entries)
        use = ToolUse(f"u{n % 37}", tool, args)  # some ids come again
        if asks_again(self.view, use):
            self.due.append(use.id)
        thought = (Thinking("t", "s"),) if n % 3 == 0 else ()
        self.log.add(Reply(assistant(*thought, use)), by="model")
        content = text_of(use.id, 40 * (n % 50))
        self.log.add(Message("user", (ToolResult(use.id, content),)), by="tools")

    def results(self) -> list[tuple[str, str]]:
        return [(r.tool_use_id, r.text) for p in self.view for r in p.message.results]

    def do(self, op: str, a: int, b: int) -> None:  # noqa: C901 - one line per kind
        n, results = len(self.log.entries), self.results()
        if op == "call":
            path = f"{MEMORY}/m.md" if a % 9 == 0 else f"/f{a % 4}"
            self.use(TOOLS[b % len(TOOLS)], file_path=path)
        elif op == "say":
            self.log.add(user("go on"))
        elif op == "answer":
            self.log.add(Reply(assistant(Thinking("t", "s"), Text("so"))), by="model")
        elif op == "clear" and results:
            chosen = list({results[i % len(results)][0] for i in (a, b)})
            shown = {
                u: format_marker(a + 1, f"/r/cleared-{n}.txt", 5 * i + 1, 4) for i, u in enumerate(chosen)
            }
            self.log.add(Results(shown), by="clearing")
        elif op == "again":
            gone = [u for p in self.view for u in p.message.tool_uses]
            if gone:
                chosen_use = gone[a % len(gone)]
                self.use(chosen_use.name, **chosen_use.input)
        elif op == "back":
            kept = [k for _, text in results if (k := parse_marker(text)) and text.startswith(CLEARED)]
            if kept:
                place = kept[a % len(kept)]
                self.use("Read", file_path=f"/r/{place.file}", offset=place.first, limit=4)
        elif op == "edit":
            self.use("Edit", file_path=f"/f{a % 4}", old_string=f"{b}")
        elif op == "show" and results:
            self.log.add(Results({results[a % len(results)][0]: f"shortened {b}"}), by="other")
        elif op == "replace" and len(self.view):
            first, last = sorted((a % len(self.view), b % len(self.view)))
            pair = assistant(ToolUse(f"r{n}", "Read", {"file_path": "/f0"}))
            restored = Message("user", (ToolResult(f"r{n}", "restored " * 40),))
            by = (user("summary"), pair, restored)[: 1 + 2 * (n % 2)]
            self.log.add(Replace(self.view[first].id, self.view[last].id, by), by="compaction")
        elif op == "snip" and len(self.view):
            self.log.add(Replace(self.view[a % len(self.view)].id, self.view[-1].id, ()), by="snip")
        elif op == "unthink" and len(self.view):
            self.log.add(Unthink(self.view[a % len(self.view)].id))
        elif op == "undo" and n:
            self.log.add(Undo(frozenset({a % n or 1, b % n or 1})))
        elif op == "resume":
            self.log = Transcript.load(b"".join(self.disk), lambda: 0.0, self.disk.append)
        elif op == "fork":
            child = Transcript.on(self.view, lambda: 0.0)
            child.add(user("of the child"))
            child.add(Results({use: "[gone]" for use, _ in results}))
        if op == "follow" or a % 3 == 0:
            self.follow()


def asks_again(view: View, use: ToolUse) -> bool:
    """From the view alone: the newest call for the same thing is cleared, and nothing has changed it."""
    uses, texts, called = list[ToolUse](), dict[int, str](), dict[str, int]()
    for placed in view:
        for made in placed.message.tool_uses:
            called[made.id] = len(uses)
            uses.append(made)
        for result in placed.message.results:
            texts[called.get(result.tool_use_id, -1)] = result.text
    if same := [i for i, u in enumerate(uses) if describe_subject(u) == describe_subject(use)]:
        later = uses[same[-1] :]
        changed = any(u.name in WRITERS and find_call_path(u) == find_call_path(use) for u in later)
        hidden = texts.get(same[-1], "").startswith(CLEARED)
        return use.name in RETRIEVERS and hidden and not changed
    kept = [k for text in texts.values() if text.startswith(CLEARED) and (k := parse_marker(text))]
    mine = [k for k in kept if k.file == Path(find_call_path(use)).name and use.name == "Read"]
    first, limit = use.input.get("offset", 1), use.input.get("limit", 10**6)
    return any(k.first < first + limit and k.last >= first for k in mine)


def everything_known(scan: ViewScan, length: int) -> dict[str, Any]:
    return {
        "found": scan.found,
        "files": scan.files,
        "counts": (scan.calls, scan.requests, scan.turns, scan.cleared, scan.clearable),
        "gone": scan.gone,
        "behind": [scan.behind(at) for at in range(length)],
        "between": [scan.behind(at, length // 2) for at in range(length // 2)],
        "old": scan.old(3),
    }


@settings(max_examples=400)
@given(OPS)
def test_following_step_by_step_finds_what_a_look_at_everything_finds(
    ops: list[tuple[str, int, int]],
) -> None:
    here = Following()
    for op, a, b in ops:
        here.do(op, a, b)
    here.follow()
    fresh = ViewScan(CLEARABLE, (MEMORY,))
    fresh.asked_again.update(here.scan.asked_again)
    fresh.follow(here.view)

    length = len(here.view)
    assert everything_known(here.scan, length) == everything_known(fresh, length)
    for one in here.scan.found:
        assert here.view.result_at(one.use.id) == one.at
        [result] = [r for r in here.view[one.at].message.results if r.tool_use_id == one.use.id]
        assert not result.text.startswith(CLEARED)
        assert not find_call_path(one.use).startswith(str(MEMORY))


@settings(max_examples=300)
@given(OPS)
def test_each_call_for_what_was_cleared_is_told_exactly_once(ops: list[tuple[str, int, int]]) -> None:
    here = Following()
    for op, a, b in ops:
        if op not in ("replace", "snip", "undo"):  # which take away what was asked for before
            here.do(op, a, b)
            here.follow()
    assert here.told == here.due
