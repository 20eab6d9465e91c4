"""Made-up tokens of every published format of the table, drawn when they are needed."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterator
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

import msgspec

from sevenfold.memory.guard.randomness import is_random
from sevenfold.memory.guard.secret_formats import TokenFormat, load_secret_table

FORMS: Final = ("assignment", "word value", "glued", "bare or prefixed")
_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PRINTABLE: Final = string.ascii_letters + string.digits


class TokenSample(msgspec.Struct, frozen=True):
    """A token of a service; `near` is the word that must stand before it, if it has no beginning."""

    service: str
    near: str
    value: str

    def __repr__(self) -> str:
        return f"TokenSample({self.service!r})"


def draw_tokens(seed: int) -> Iterator[TokenSample]:
    """One token of each format and beginning."""
    table = load_secret_table()
    chance = random.Random(seed)
    for service in table.service:
        for form in service.tokens:
            body = form.pattern or _write_pattern(form, table.alphabets)
            near = form.near[0] if form.near else ""
            for begin in form.begins or ("",):
                yield TokenSample(service.name, near, begin + _draw_random(body, chance))


def _write_pattern(form: TokenFormat, alphabets: dict[str, str]) -> str:
    if form.alphabet == "uuid":
        return _UUID
    least, most = form.length
    return f"[{alphabets[form.alphabet]}]{{{least},{most}}}"


def _draw_random(pattern: str, chance: random.Random) -> str:
    """A value of that pattern that looks random, as a real one does almost always."""
    for _ in range(200):
        value = draw_match(pattern, chance)
        if is_random(value, min(16, len(value))) and value[0].isalnum() and value.rstrip("=")[-1].isalnum():
            break
    return value


def draw_match(pattern: str, chance: random.Random) -> str:
    """A text that the whole pattern matches; it knows what the table uses."""
    return "".join(_draw(parser.parse(pattern), chance))


def _draw(nodes: Any, chance: random.Random) -> Iterator[str]:
    for kind, value in nodes:
        if kind is op.LITERAL:
            yield chr(value)
        elif kind in (op.IN, op.ANY):
            yield _draw_one(value, chance)
        elif kind is op.MAX_REPEAT:
            least, most, inner = value
            for _ in range(chance.randint(least, min(most, least + 20))):
                yield from _draw(inner, chance)
        elif kind is op.SUBPATTERN:
            yield from _draw(value[-1], chance)
        elif kind is op.BRANCH:
            yield from _draw(chance.choice(value[1]), chance)
        elif kind not in (op.ASSERT, op.ASSERT_NOT, op.AT):
            raise ValueError(f"the sampler does not know {kind}")


def _draw_one(parts: Any, chance: random.Random) -> str:
    if parts is None or parts[0][0] is op.NEGATE:
        return chance.choice(_PRINTABLE)
    allowed: list[str] = []
    for kind, value in parts:
        if kind is op.RANGE:
            allowed += map(chr, range(value[0], value[1] + 1))
        elif kind is op.LITERAL:
            allowed.append(chr(value))
        else:
            allowed += string.digits if value is op.CATEGORY_DIGIT else _PRINTABLE
    return chance.choice(allowed)


def write_form(form: str, sample: TokenSample) -> str:
    """The token in a sentence of that form."""
    word = sample.near or "service"
    match form:
        case "assignment":
            return f"export {re.sub('[^A-Za-z0-9]', '_', word).upper()}_API_TOKEN={sample.value}"
        case "word value":
            return f"we sign in with the {word} token {sample.value} there"
        case "glued":
            return f"see{sample.value}"
        case _:
            return f"{word}: {sample.value}" if sample.near else sample.value
