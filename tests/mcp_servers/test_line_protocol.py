"""Lines in, lines out: no line ends the server, each request is answered once, nothing else is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_servers.serving import LineServer, ServedProject, call, initialize, modern, request, text_of

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_of_the_handshake_is_spoken(project: ServedProject, version: str) -> None:
    with project.start() as server:
        first, tools, pong = server.end(initialize(version), request("tools/list", 2), request("ping", 3))

    assert first["result"]["protocolVersion"] == version
    assert first["result"]["serverInfo"]["name"] == "sevenfold"
    assert len(tools["result"]["tools"]) == 8
    assert pong["result"] == {}


def test_an_unknown_version_gets_our_newest_of_the_handshake(project: ServedProject) -> None:
    with project.start() as server:
        (answer,) = server.end(initialize("2031-01-01"))

    assert answer["result"]["protocolVersion"] == "2025-11-25"


def test_a_server_can_be_discovered(project: ServedProject) -> None:
    with project.start() as server:
        (answer,) = server.end(modern("server/discover", "server-discover-probe-1"))

    assert answer["id"] == "server-discover-probe-1"
    result = answer["result"]
    assert result["supportedVersions"][0] == "2026-07-28"
    assert (result["resultType"], result["cacheScope"]) == ("complete", "private")


@pytest.mark.parametrize(
    ("line", "id", "code"),
    [
        (b"{broken", None, -32700),
        (b"\xff\xfe", None, -32700),
        (b"[" * 100_000, None, -32700),
        (b"[]", None, -32600),
        (b"17", None, -32600),
        (b'{"jsonrpc": "2.0", "id": 1}', 1, -32600),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', None, -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', None, -32600),
        (b'{"id": 1, "method": "ping"}', 1, -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}', 1, -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage"}', 1, -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "burn"}}', 1, -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": []}}', 1, -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": {}}}', 1, -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": {"name": []}}', 1, -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "x:y"}}', 1, -32002),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": {"cursor": "x"}}', 1, -32602),
    ],
)
def test_a_wrong_line_is_answered_with_its_error(
    project: ServedProject, line: bytes, id: int | None, code: int
) -> None:
    with project.start() as server:
        wrong, pong = server.end(line, request("ping", 99))
    if pong["id"] != 99:  # what needs the memory is answered after what does not
        wrong, pong = pong, wrong

    assert (wrong["id"], wrong["error"]["code"]) == (id, code)
    assert pong["id"] == 99


def test_notifications_and_stray_answers_are_not_answered(project: ServedProject) -> None:
    with project.start() as server:
        (pong,) = server.end(
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}},
            {"jsonrpc": "2.0", "method": "of/our/own", "params": []},
            {"jsonrpc": "2.0", "id": "sevenfold-1", "result": {}},
            {"jsonrpc": "2.0", "id": 4, "error": {"code": 1, "message": "no"}},
            b"",
            request("ping"),
        )

    assert pong["result"] == {}


def test_a_batch_is_answered_message_by_message(project: ServedProject) -> None:
    batch = json.dumps([request("ping", 1), request("ping", 2), 3]).encode()
    with project.start() as server:
        answers = server.end(batch)

    assert [answer["id"] for answer in answers] == [1, 2, None]


def test_what_a_module_prints_does_not_reach_the_client(project: ServedProject, tmp_path: Path) -> None:
    module = tmp_path / "noisy" / "numpy.py"
    module.parent.mkdir()
    module.write_text("print('hello from an import')\nraise ImportError('none here')\n")
    project.variables["PYTHONPATH"] = str(module.parent)
    with project.start() as server:
        answers = server.end(initialize(), call("recall", 2, query="anything at all?"))

    assert [answer["id"] for answer in answers] == [0, 2]


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("recall", {}, "missing required field `query`"),
        ("recall", {"query": "x", "limit": 9}, "<= 5"),
        ("recall", {"query": "  "}, "ask something"),
        ("recall", {"query": "x", "colour": "red"}, "unknown field `colour`"),
        (
            "remember",
            {"type": "gossip", "name": "a", "description": "b", "body": "c"},
            "Invalid enum value",
        ),
        ("read", {}, "the name of a memory, or index: true"),
        ("undo", {"to": "beef00"}, "beef00"),
        ("dream", {"job": "../../etc"}, "there is no dream"),
    ],
)
def test_wrong_arguments_are_told_to_the_model(
    project: ServedProject, tool: str, arguments: dict[str, Any], said: str
) -> None:
    with project.start() as server:
        (answer,) = server.end(call(tool, **arguments))

    assert answer["result"]["isError"]
    assert said in text_of(answer)
    assert len(text_of(answer).splitlines()) == 1


def test_a_read_only_server_offers_and_runs_nothing_that_changes(project: ServedProject) -> None:
    with project.start("--read-only") as server:
        listed, refused = server.end(
            request("tools/list", 1),
            call("remember", 2, type="project", name="a", description="b", body="c"),
        )

    names = [tool["name"] for tool in listed["result"]["tools"]]
    assert names == ["recall", "read", "search", "history"]
    assert text_of(refused) == "remember was not run: this server only reads"


# --- bad input: one sentence, and nothing is changed ----------------------------------------------------

SAVE = {"type": "project", "name": "a-fact", "description": "The port is 8080", "body": "The port is 8080."}


def test_a_project_that_is_not_there_is_named(project: ServedProject) -> None:
    with project.start("--project", "/no/such/folder") as server:
        _, answer = server.end(initialize(), call("remember", 1, **SAVE))

    assert answer["result"]["isError"]
    assert text_of(answer) == "/no/such/folder is not a folder; name the project's folder with --project"
    assert not project.home.exists()


def test_a_home_folder_is_the_memory_of_the_user_and_it_says_so(project: ServedProject) -> None:
    with project.start(cwd=project.user) as server:
        answer = server.ask("tools/call", name="remember", arguments=SAVE)
        again = server.ask("tools/call", name="recall", arguments={"query": "which port?"})

    assert "belongs to you, not to a project" in text_of(answer)
    assert not answer["result"]["isError"]
    assert "belongs to you" not in text_of(again)


def test_memory_that_is_off_is_said(project: ServedProject) -> None:
    project.variables["SEVENFOLD_DISABLE_MEMORY"] = "1"
    with project.start() as server:
        _, answer = server.end(initialize(), call("remember", 1, **SAVE))

    assert answer["result"]["isError"]
    assert text_of(answer).startswith("memory is off: ")
    assert not list(project.home.glob("projects/*"))


def test_a_variable_without_sense_is_said(project: ServedProject) -> None:
    project.variables["SEVENFOLD_WINDOW"] = "wide"
    with project.start() as server:
        _, answer = server.end(initialize(), call("recall", 1, query="which port?"))

    assert answer["result"]["isError"]
    assert "SEVENFOLD_WINDOW" in text_of(answer)


def test_two_servers_on_one_folder_lose_nothing(project: ServedProject) -> None:
    with project.start() as one, project.start() as other:
        for at in range(5):
            for number, server in enumerate((one, other)):
                named = {
                    **SAVE,
                    "name": f"fact-{at}-{number}",
                    "body": f"Port {80 + at} is {number} hops off.",
                }
                server.send(call("remember", at, **named))
        answers = [server.receive() for _ in range(5) for server in (one, other)]

    assert not any(answer["result"]["isError"] for answer in answers)
    with project.open_memory() as memory:
        revisions = memory.history()
    assert len(revisions) == 10
    assert {file.file for one in revisions for file in one.files} >= {"fact-0-0.md", "fact-0-1.md"}


def test_a_client_of_both_generations_is_told_so(project: ServedProject) -> None:
    with project.start() as server:
        first, discovered, mixed = server.end(
            initialize(),
            modern("server/discover", 1),
            modern("tools/call", 2, name="remember", arguments=SAVE),
        )
    with project.start() as server:
        listed, late = server.end(modern("tools/list", 1), initialize())

    assert "result" in first
    assert "result" in discovered
    assert mixed["error"]["code"] == -32600
    assert "a request of 2026-07-28 does not belong on it" in mixed["error"]["message"]
    assert "result" in listed
    assert late["error"]["code"] == -32022
    assert not list(project.home.glob("projects/*/memory/*"))


@pytest.mark.parametrize("size", [10_000_000, 20_000_000])
def test_an_argument_that_is_far_too_large_is_refused(project: ServedProject, size: int) -> None:
    with project.start() as server:
        answer, pong = server.end(call("remember", 1, **{**SAVE, "body": "x" * size}), request("ping", 2))
    if pong["id"] != 2:
        answer, pong = pong, answer

    said = text_of(answer) if "result" in answer else answer["error"]["message"]
    assert "bytes" in said
    assert len(said) < 300
    assert pong["result"] == {}
    assert not list(project.home.glob("projects/*/memory/a-fact.md"))


# --- anything at all ------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
METHODS = st.sampled_from(
    [
        "initialize",
        "server/discover",
        "ping",
        "tools/list",
        "tools/call",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "logging/setLevel",
        "no/such",
    ]
)
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["recall", "read", "search", "history", "tidy", "hook", [], {}]) | JSON,
        "arguments": JSON,
        "uri": st.sampled_from(["memory://index", "memory://topic/", "memory://topic/x%2F..", "y"]) | JSON,
        "_meta": JSON,
        "cursor": JSON,
        "protocolVersion": JSON,
        "capabilities": JSON,
    },
)
REQUESTS = st.tuples(METHODS, PARAMS | JSON)
NOISE = st.binary(max_size=80).map(lambda data: data.replace(b"\n", b" ")) | JSON.map(
    lambda value: json.dumps(value).encode()
)


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LineServer]:
    with ServedProject(tmp_path_factory.mktemp("served")).start() as server:
        yield server


NUMBERS = iter(range(1_000, 1 << 40))


@settings(max_examples=60)
@given(st.lists(REQUESTS | NOISE, max_size=6))
def test_no_line_ends_the_server_and_each_id_is_answered_once(
    standing: LineServer, lines: list[tuple[str, Any] | bytes]
) -> None:
    ids = set[int]()
    for line in lines:
        if isinstance(line, bytes):
            standing.send(line)
        else:
            ids.add(id := next(NUMBERS))
            standing.send({"jsonrpc": "2.0", "id": id, "method": line[0], "params": line[1]})
    ids.add(last := next(NUMBERS))
    standing.send(call("read", last, index=True))  # the worker answers in order: this is the last

    answered = list[int]()
    while not answered or not ids <= set(answered):
        answer = standing.receive()
        assert ("result" in answer) != ("error" in answer)
        if isinstance(answer["id"], int) and answer["id"] >= 1_000:
            answered.append(answer["id"])
    assert sorted(answered) == sorted(ids)
