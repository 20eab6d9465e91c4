"""The words of a shell command: what each one says once quotes are gone, and how sure that is."""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node


class UnsureError(Exception):
    """A command, or a part of one, that is not certain to be harmless; the text says which."""


class Kind(enum.IntEnum):
    """How far the text of a word is certain; a word made of pieces is as bad as its worst."""

    FIXED = 0  # exactly its text
    PATH = 1  # one word, not an option: begins with a home folder or the working folder
    GLOB = 2  # any number of file names that fit the pattern
    LOOSE = 3  # may become several words of any beginning: braces, an unquoted $HOME
    UNKNOWN = 4  # the value of a variable we know nothing about


class Word(msgspec.Struct, frozen=True):
    """One word of a command: the text after quote removal, the source text, the certainty."""

    text: str
    source: str
    kind: Kind = Kind.FIXED


class _Piece(msgspec.Struct, frozen=True):
    """A part of a word; in `shape` every quoted character is blanked, so syntax stands out."""

    text: str
    shape: str
    kind: Kind = Kind.FIXED


WORD_NODES = frozenset(
    {
        "word",
        "number",
        "string",
        "raw_string",
        "concatenation",
        "simple_expansion",
        "brace_expression",
    }
)

# Characters that stand for themselves outside quotes, the pattern characters included.
_PLAIN = re.compile(r"[\w./,:=@%+^~\-#\[\]{}*?]|[^\x00-\x7f]")
_ESCAPED = re.compile(r"\\([ !-/:-@\[-`{-~])")
_LONE_BANG = frozenset({"!", "!="})
# Inside double quotes: `$` counts as itself before a space, `|`, `)` or the closing quote,
# and `!` where even an interactive shell leaves it alone.
_QUOTED = re.compile(
    r"""[^"$`\\!]+ | \\[$`"\\] | \\[^$`"\\\n] | !(?=[ =]|\Z) | \$(?=[ |)]|\Z)""", re.VERBOSE
)
_QUOTED_ESCAPE = re.compile(r'\\([$`"\\])')
_EXPANSION = re.compile(r"\$([A-Za-z_]\w*|[?@*#$!0-9-])", re.ASCII)
_HARMLESS_VARIABLES = frozenset({"HOME", "PWD", "?"})
# Braces that bash leaves alone, as in `{}` and `HEAD@{1}`: neither a comma nor `..` inside.
_IDLE_BRACES = re.compile(r"\{(?:(?!\.\.)[^{},])*\}")
_BRACE_RANGE = re.compile(r"\{-?\w+\.\.-?\w+(\.\.-?\d+)?\}", re.ASCII)
_TILDE = re.compile(r"(?:\A|[=:])~")  # bash expands `name=~` in arguments too
_NUMBER = re.compile(r"-?[0-9]+")


def decode(node: Node) -> Word:
    """The word that a node of the syntax tree stands for."""
    pieces = list(_pieces(node))
    source = _source(node)
    if source.startswith("#"):
        raise UnsureError("a word begins with `#`")
    text = "".join(piece.text for piece in pieces)
    shape = "".join(piece.shape for piece in pieces)
    kind = max(piece.kind for piece in pieces)
    return Word(text, source, max(kind, _kind_of_shape(shape)))


def _source(node: Node) -> str:
    text = node.text
    if text is None:
        raise UnsureError("it cannot be parsed")
    return text.decode("utf-8")


def _kind_of_shape(shape: str) -> Kind:
    if "{" in _IDLE_BRACES.sub("", shape):
        return Kind.LOOSE
    if any(mark in shape for mark in "*?["):
        return Kind.GLOB
    return Kind.PATH if _TILDE.search(shape) else Kind.FIXED


def _pieces(node: Node) -> Iterator[_Piece]:
    if node.type != "concatenation":
        yield _piece(node)
        return
    end = node.start_byte
    for child in node.children:
        if child.start_byte != end or child.type == "concatenation":
            raise UnsureError("a word is joined in a way that is not certain")
        end = child.end_byte
        yield _piece(child)


def _piece(node: Node) -> _Piece:
    source = _source(node)
    match node.type:
        case "word":
            return _unquoted(source)
        case "number" if _NUMBER.fullmatch(source):
            return _Piece(source, source)
        case "raw_string" if re.fullmatch(r"'[^']*'", source):
            return _Piece(source[1:-1], "_" * max(1, len(source) - 2))
        case "string":
            return _double_quoted(node, source)
        case "simple_expansion":
            return _Piece(source, "_", max(Kind.LOOSE, _variable(source)))
        case "brace_expression" if _BRACE_RANGE.fullmatch(source):
            return _Piece(source, source, Kind.LOOSE)
        case other:
            raise UnsureError(f"a word contains {describe(other)}")


def describe(node_type: str) -> str:
    """A node type of the grammar as words for a reason."""
    name = node_type.replace("_", " ")
    return (
        f"`{name}`" if not name[:1].isalpha() else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
    )


def _unquoted(source: str) -> _Piece:
    if source in _LONE_BANG:
        return _Piece(source, "_" * len(source))
    text, shape, at = "", "", 0
    while at < len(source):
        if _PLAIN.match(source, at):
            text, shape, at = text + source[at], shape + source[at], at + 1
        elif found := _ESCAPED.match(source, at):
            text, shape, at = text + found[1], shape + "_", found.end()
        else:
            raise UnsureError(f"`{source[at : at + 2]}` outside quotes")
    return _Piece(text, shape)


def _double_quoted(node: Node, source: str) -> _Piece:
    if len(source) < 2 or source[0] != '"' or source[-1] != '"':
        raise UnsureError("a string is not closed")
    text, kind, at = "", Kind.FIXED, 1
    raw = source.encode("utf-8")
    for child in node.children:
        if child.type == "simple_expansion":
            start, end = child.start_byte - node.start_byte, child.end_byte - node.start_byte
            text += _literal(raw[at:start].decode("utf-8"), last=False)
            expansion = raw[start:end].decode("utf-8")
            text, kind, at = text + expansion, max(kind, _variable(expansion)), end
        elif child.type not in {'"', "$", "string_content"}:
            raise UnsureError(f"a string contains {describe(child.type)}")
    text += _literal(raw[at:-1].decode("utf-8"), last=True)
    return _Piece(text, "_" * max(1, len(text)), kind)


def _literal(content: str, *, last: bool) -> str:
    at = 0
    while at < len(content):
        found = _QUOTED.match(content, at)
        if found is None or (not last and found[0] in "$!" and found.end() == len(content)):
            raise UnsureError(f"`{content[at : at + 2]}` inside double quotes")
        at = found.end()
    return _QUOTED_ESCAPE.sub(r"\1", content)


def _variable(expansion: str) -> Kind:
    found = _EXPANSION.fullmatch(expansion)
    if found is None:
        raise UnsureError(f"the expansion `{expansion}`")
    return Kind.PATH if found[1] in _HARMLESS_VARIABLES else Kind.UNKNOWN
