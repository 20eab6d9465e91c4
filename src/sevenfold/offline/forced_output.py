"""Output that a request insists on: a call of a tool, or JSON that a schema takes.

A request can say that one tool, or any, must be called, and in which format the answer must be. The rules
may have nothing to say there; then each required field gets the first value that is allowed there. The
format of a request is that of the Messages API, `output_config.format`; other APIs are turned into it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from sevenfold.core.errors import BadRequest
from sevenfold.core.messages import Json

DEEPEST: Final = 12  # A schema is followed to this depth; one that refers to itself has no end
MOST_ITEMS: Final = 100
LONGEST: Final = 10_000
_FORMATS: Final = {
    "date": "2000-01-01", "date-time": "2000-01-01T00:00:00Z", "time": "00:00:00Z",
    "email": "someone@example.com", "uri": "https://example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
}  # fmt: skip


BEYOND: Final = frozenset({
    "contains", "dependentRequired", "dependentSchemas", "if", "minProperties", "not", "pattern",
    "prefixItems", "uniqueItems",
})  # fmt: skip
"""Words of JSON Schema for which our smallest value may be wrong."""
_NAMED: Final = ("properties", "$defs", "definitions", "patternProperties")
_encode = msgspec.json.Encoder().encode


def find_forced_tools(body: Json) -> tuple[Json, ...]:
    """The tools of which the request says that one must be called; none where it leaves the choice."""
    choice, tools = body.get("tool_choice"), body.get("tools")
    if not isinstance(choice, dict) or not isinstance(tools, list):
        return ()
    offered = [t for t in tools if isinstance(t, dict) and isinstance(t.get("name"), str)]
    if choice.get("type") == "tool":
        offered = [t for t in offered if t["name"] == choice.get("name")]
    elif choice.get("type") != "any":
        return ()
    return tuple(t for t in offered if not t.get("defer_loading") or choice["type"] == "tool")


def make_smallest_call(tool: Json) -> Json:
    """A call of this tool with only what its schema requires. It has no id."""
    schema = tool.get("input_schema")
    given = make_smallest_value(schema, schema) if isinstance(schema, dict) else {}
    return {"type": "tool_use", "name": tool["name"], "input": given if isinstance(given, dict) else {}}


def make_smallest_value(schema: Any, root: Json, depth: int = 0) -> Any:
    """The smallest value that a JSON schema takes, as far as its usual words go."""
    if not isinstance(schema, dict) or depth > DEEPEST:
        return None
    schema = _merged(schema, root)
    if allowed := _list(schema.get("enum")):
        return allowed[0]
    for word in ("const", "default"):
        if word in schema:
            return schema[word]
    for word in ("anyOf", "oneOf"):
        if (ways := _list(schema.get(word))) and "properties" not in schema:
            ends = depth > DEEPEST // 2 and {"type": "null"} in ways  # it refers to itself
            return None if ends else make_smallest_value(ways[0], root, depth + 1)
    kind = _kind(schema)
    if kind == "object":
        fields, needed = _dict(schema.get("properties")), _list(schema.get("required"))
        named = [name for name in needed if isinstance(name, str)]
        return {name: make_smallest_value(fields.get(name, {}), root, depth + 1) for name in named}
    if kind == "array":
        one = make_smallest_value(schema.get("items") or {}, root, depth + 1)
        return [one] * min(MOST_ITEMS, int(_number_in(schema, "minItems") or 0))
    return _plain(kind, schema)


def _merged(schema: Json, root: Json) -> Json:
    """The schema with what it refers to and all that it must be besides."""
    for _ in range(DEEPEST):
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            break
        rest = {k: v for k, v in schema.items() if k != "$ref"}
        schema = {**_referred(reference, root), **rest}
    for part in map(_dict, _list(schema.get("allOf"))):
        part = _referred(str(part["$ref"]), root) if "$ref" in part else part
        fields = {**_dict(schema.get("properties")), **_dict(part.get("properties"))}
        needed = [*_list(schema.get("required")), *_list(part.get("required"))]
        schema = {**part, **schema}
        if fields:
            schema |= {"properties": fields, "required": needed}
    return schema


def _referred(reference: str, root: Json) -> Json:
    found: Any = root
    for name in filter(None, reference.removeprefix("#").split("/")):
        found = found.get(name) if isinstance(found, dict) else None
    return _dict(found)


def _kind(schema: Json) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    if kind is None:
        kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
    return str(kind)


def _plain(kind: str, schema: Json) -> Any:
    if kind in ("integer", "number"):
        return _number(kind, schema)
    if kind == "boolean":
        return False
    if kind != "string":
        return None
    text = _FORMATS.get(str(schema.get("format")), "text")
    text = text.ljust(min(LONGEST, int(_number_in(schema, "minLength") or 0)), "x")
    most = _number_in(schema, "maxLength")
    return text if most is None else text[: max(0, int(most))]


def _number(kind: str, schema: Json) -> Any:
    """The number nearest to the lower bound, or to the upper one where there is no other."""
    low, above = _number_in(schema, "minimum"), _number_in(schema, "exclusiveMinimum")
    high, below = _number_in(schema, "maximum"), _number_in(schema, "exclusiveMaximum")
    if kind == "number" and above is not None and below is not None:
        return (above + below) / 2
    least = max((n for n in (low, None if above is None else above + 1) if n is not None), default=0)
    value = min(n for n in (least, high, None if below is None else below - 1) if n is not None)
    step = _number_in(schema, "multipleOf")
    return -(-value // step) * step if step else value


def _number_in(schema: Json, word: str) -> Any:
    value = schema.get(word)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


# --- formats ---------------------------------------------------------------------------------------------


def find_output_format(body: Json) -> Json | None:
    """The format that a request asks for; None for plain text."""
    config = body.get("output_config")
    found = config.get("format") if isinstance(config, dict) else body.get("output_format")
    asked = isinstance(found, dict) and found.get("type") in ("json_schema", "json_object")
    return found if asked else None


def apply_output_format(body: Json, content: list[Json]) -> list[Json]:
    """The same reply in the format that was asked for; calls of tools are as they were."""
    wanted = find_output_format(body)
    if wanted is None or any(block.get("type") == "tool_use" for block in content):
        return content
    said = "".join(str(block["text"]) for block in content if block.get("type") == "text")
    other = [block for block in content if block.get("type") != "text"]
    return [*other, {"type": "text", "text": make_structured_text(wanted, said)}]


def make_structured_text(wanted: Json, said: str) -> str:
    """JSON in this format; `said` stands in it where there is no schema. A `BadRequest` if we have none."""
    schema = wanted.get("schema")
    if wanted["type"] == "json_object":
        return str(_encode({"answer": said}), "utf-8")
    if not isinstance(schema, dict):
        raise BadRequest("the output format has no schema: give a JSON schema as an object")
    if beyond := sorted(set(_iterate_words(schema)) & BEYOND):
        raise BadRequest(
            f"the offline engine cannot answer by a schema with {', '.join(beyond)}: script the reply, or "
            "leave that out of the schema"
        )
    return str(_encode(make_smallest_value(schema, schema)), "utf-8")


def _iterate_words(schema: Any) -> Iterator[str]:
    """Yields the words that a schema and the schemas in it use."""
    if isinstance(schema, list):
        for one in schema:
            yield from _iterate_words(one)
    if not isinstance(schema, dict):
        return
    for word, value in schema.items():
        yield word
        if word in _NAMED and isinstance(value, dict):
            value = list(value.values())
        if word not in ("enum", "const", "default", "examples", "required"):
            yield from _iterate_words(value)
