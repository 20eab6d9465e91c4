"""Checks what a model passes to a tool against the tool's schema, and says which field is wrong."""

from __future__ import annotations

from typing import Any, Final

from sevenfold.messages import Json, whole_characters

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_SHOWN: Final = 60


def cleaned(value: Any) -> Any:
    """The same without halves of characters, which no file and no command line can hold."""
    if isinstance(value, str):
        return whole_characters(value)
    if isinstance(value, dict):
        return {whole_characters(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [cleaned(item) for item in value]
    return value


def problem(schema: Json, args: Json) -> str | None:
    """What is wrong with these arguments, in one sentence that names the field; None: nothing.

    Only the plain part of JSON Schema is checked; what is beyond it is for the tool to say.
    """
    properties: Json = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in args:
            return f"the field {name} is missing; it takes {_takes(properties.get(name, {}))}"
    for name, value in args.items():
        if name not in properties:
            if schema.get("additionalProperties", True) is False:
                return f"there is no field {name}; the fields are {', '.join(properties)}"
        elif wrong := _wrong(properties[name], value):
            return f"the field {name} takes {_takes(properties[name])}, not {wrong}"
    return None


def _wrong(schema: Json, value: Any) -> str | None:
    kind = schema.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        fits = isinstance(value, _TYPES[kind]) and (
            kind == "boolean" or not isinstance(value, bool)
        )
        if not fits:
            return _shown(value)
    if "enum" in schema and value not in schema["enum"]:
        return _shown(value)
    if "minimum" in schema and isinstance(value, int | float) and value < schema["minimum"]:
        return _shown(value)
    return None


def _takes(schema: Json) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    kind = schema.get("type", "a value")
    article = "an" if str(kind)[0] in "aeio" else "a"
    least = f" of at least {schema['minimum']}" if "minimum" in schema else ""
    return f"{article} {kind}{least}" if kind != "a value" else "a value"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
