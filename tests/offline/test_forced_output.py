"""A tool that a request insists on is called, with an input that its schema takes."""

from __future__ import annotations

from typing import Any

import pytest
from offline.offline_project import ALL_TOOLS

from sevenfold.core.messages import Json
from sevenfold.offline import encode_reply
from sevenfold.offline.forced_output import make_smallest_value

ADDRESS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
BOOK: Json = {
    "name": "book",
    "input_schema": {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": ["single", "double"]},
            "nights": {"type": "integer", "minimum": 2},
            "where": {"$ref": "#/$defs/address"},
            "guests": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "late": {"type": "boolean"},
            "remark": {"type": "string"},
        },
        "required": ["kind", "nights", "where", "guests", "late"],
        "$defs": {"address": ADDRESS},
    },
}
SMALLEST = {"kind": "single", "nights": 2, "where": {"city": "text"}, "guests": ["text"], "late": False}
TOOLS = [{"name": n, "input_schema": s} for n, s in ALL_TOOLS.items()]


def called(text: str, choice: Json, *tools: Json) -> list[tuple[str, Json]]:
    messages = [{"role": "user", "content": text}]
    body = {"messages": messages, "tools": list(tools), "tool_choice": choice}
    return [(b["name"], b["input"]) for b in encode_reply(body) if b["type"] == "tool_use"]


def test_the_tool_is_called_with_what_its_schema_requires() -> None:
    choice = {"type": "tool", "name": "book"}
    assert called("hello", choice, *TOOLS, BOOK) == [("book", SMALLEST)]
    assert called("read a.txt", choice, *TOOLS, BOOK) == [("book", SMALLEST)]
    assert called("hello", {"type": "any"}, BOOK) == [("book", SMALLEST)]


def test_what_the_rules_would_call_anyway_is_kept() -> None:
    choice = {"type": "tool", "name": "Read"}
    assert called("read a.txt", choice, *TOOLS, BOOK) == [("Read", {"file_path": "a.txt"})]
    assert called("read a.txt", {"type": "any"}, BOOK, *TOOLS) == [("Read", {"file_path": "a.txt"})]


@pytest.mark.parametrize("choice", [{"type": "auto"}, {"type": "none"}, {"type": "tool"}, {}])
def test_nothing_is_called_where_nothing_is_insisted_on(choice: Json) -> None:
    assert called("hello", choice, BOOK) == []


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"const": 3}, 3),
        ({"type": ["null", "integer"]}, 0),
        ({"type": "null"}, None),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, 0),
        ({"type": "string", "minLength": 6}, "textxx"),
        ({"type": "string", "maxLength": 2}, "te"),
        ({"type": "string", "format": "date"}, "2000-01-01"),
        ({"type": "integer", "exclusiveMinimum": 4}, 5),
        ({"type": "integer", "maximum": -3}, -3),
        ({"type": "integer", "minimum": 5, "multipleOf": 4}, 8),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
        ({"allOf": [ADDRESS], "type": "object"}, {"city": "text"}),
        ({"properties": {"a": {"type": "boolean"}}, "required": ["a", "b"]}, {"a": False, "b": "text"}),
        ({"type": "object", "required": "a", "properties": 3}, {}),
        ({"type": "integer", "minimum": "low"}, 0),
    ],
)  # fmt: skip
def test_the_smallest_value_of_a_schema(schema: Json, wanted: Any) -> None:
    assert make_smallest_value(schema, schema) == wanted


def test_a_schema_without_end_has_an_end() -> None:
    node: Json = {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#"}}}
    assert "next" in make_smallest_value(node, node)
    loop: Json = {"$ref": "#"}
    assert make_smallest_value(loop, loop) == "text"
