"""The words of a shell command after quote removal, with their certainty, and tables of known options."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node


class UnsureError(Exception):
    """A command, or a part of one, is not certain to be harmless; the text says which."""


class WordCertainty(enum.IntEnum):
    """The certainty of a word's text; a word made of pieces has that of its worst piece."""

    FIXED = 0  # exactly its text
    PATH = 1  # one word, not an option: begins with a home folder or the working folder
    GLOB = 2  # any number of file names that fit the pattern
    LOOSE = 3  # may become several words of any beginning: braces, an unquoted $HOME
    UNKNOWN = 4  # the value of a variable we know nothing about


class ShellWord(msgspec.Struct, frozen=True):
    """One word of a command: the text after quote removal, the source text, the certainty."""

    text: str
    source: str
    kind: WordCertainty = WordCertainty.FIXED


class _WordPiece(msgspec.Struct, frozen=True):
    """A part of a word; in `shape` every quoted character is blanked, so syntax stands out."""

    text: str
    shape: str
    kind: WordCertainty = WordCertainty.FIXED


WORD_NODES = frozenset(
    {"word", "number", "string", "raw_string", "concatenation", "simple_expansion", "brace_expression"}
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
_QUOTED_ESCAPE = r'\\([$`"\\])'
_EXPANSION = r"(?a)\$([A-Za-z_]\w*|[?@*#$!0-9-])"
_HARMLESS_VARIABLES = frozenset({"HOME", "PWD", "?"})
# Braces that bash leaves alone, as in `{}` and `HEAD@{1}`: neither a comma nor `..` inside.
_IDLE_BRACES = r"\{(?:(?!\.\.)[^{},])*\}"
_BRACE_RANGE = r"(?a)\{-?\w+\.\.-?\w+(\.\.-?\d+)?\}"
_TILDE = r"(?:\A|[=:])~"  # bash expands `name=~` in arguments too
_NUMBER = r"-?[0-9]+"


def decode_word(node: Node) -> ShellWord:
    """The word that a node of the syntax tree stands for."""
    pieces = list(_decode_pieces(node))
    source = _decode_source(node)
    if source.startswith("#"):
        raise UnsureError("a word begins with `#`")
    text = "".join(piece.text for piece in pieces)
    shape = "".join(piece.shape for piece in pieces)
    kind = max(piece.kind for piece in pieces)
    return ShellWord(text, source, max(kind, _classify_shape(shape)))


def _decode_source(node: Node) -> str:
    text = node.text
    if text is None:
        raise UnsureError("it cannot be parsed")
    return text.decode("utf-8")


def _classify_shape(shape: str) -> WordCertainty:
    if "{" in re.sub(_IDLE_BRACES, "", shape):
        return WordCertainty.LOOSE
    if any(mark in shape for mark in "*?["):
        return WordCertainty.GLOB
    return WordCertainty.PATH if re.search(_TILDE, shape) else WordCertainty.FIXED


def _decode_pieces(node: Node) -> Iterator[_WordPiece]:
    if node.type != "concatenation":
        yield _decode_piece(node)
        return
    end = node.start_byte
    for child in node.children:
        if child.start_byte != end or child.type == "concatenation":
            raise UnsureError("a word is joined in a way that is not certain")
        end = child.end_byte
        yield _decode_piece(child)


def _decode_piece(node: Node) -> _WordPiece:
    source = _decode_source(node)
    match node.type:
        case "word":
            return _decode_unquoted(source)
        case "number" if re.fullmatch(_NUMBER, source):
            return _WordPiece(source, source)
        case "raw_string" if re.fullmatch(r"'[^']*'", source):
            return _WordPiece(source[1:-1], "_" * max(1, len(source) - 2))
        case "string":
            return _decode_double_quoted(node, source)
        case "simple_expansion":
            return _WordPiece(source, "_", max(WordCertainty.LOOSE, _classify_variable(source)))
        case "brace_expression" if re.fullmatch(_BRACE_RANGE, source):
            return _WordPiece(source, source, WordCertainty.LOOSE)
        case other:
            raise UnsureError(f"a word contains {describe_node(other)}")


def describe_node(node_type: str) -> str:
    """A node type of the grammar as words for a reason."""
    name = node_type.replace("_", " ")
    return f"`{name}`" if not name[:1].isalpha() else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _decode_unquoted(source: str) -> _WordPiece:
    if source in _LONE_BANG:
        return _WordPiece(source, "_" * len(source))
    text, shape, at = "", "", 0
    while at < len(source):
        if _PLAIN.match(source, at):
            text, shape, at = text + source[at], shape + source[at], at + 1
        elif found := _ESCAPED.match(source, at):
            text, shape, at = text + found[1], shape + "_", found.end()
        else:
            raise UnsureError(f"`{source[at : at + 2]}` outside quotes")
    return _WordPiece(text, shape)


def _decode_double_quoted(node: Node, source: str) -> _WordPiece:
    if len(source) < 2 or source[0] != '"' or source[-1] != '"':
        raise UnsureError("a string is not closed")
    text, kind, at = "", WordCertainty.FIXED, 1
    raw = source.encode("utf-8")
    for child in node.children:
        if child.type == "simple_expansion":
            start, end = child.start_byte - node.start_byte, child.end_byte - node.start_byte
            text += _decode_literal(raw[at:start].decode("utf-8"), last=False)
            expansion = raw[start:end].decode("utf-8")
            text, kind, at = text + expansion, max(kind, _classify_variable(expansion)), end
        elif child.type not in {'"', "$", "string_content"}:
            raise UnsureError(f"a string contains {describe_node(child.type)}")
    text += _decode_literal(raw[at:-1].decode("utf-8"), last=True)
    return _WordPiece(text, "_" * max(1, len(text)), kind)


def _decode_literal(content: str, *, last: bool) -> str:
    at = 0
    while at < len(content):
        found = _QUOTED.match(content, at)
        if found is None or (not last and found[0] in "$!" and found.end() == len(content)):
            raise UnsureError(f"`{content[at : at + 2]}` inside double quotes")
        at = found.end()
    return re.sub(_QUOTED_ESCAPE, r"\1", content)


def _classify_variable(expansion: str) -> WordCertainty:
    found = re.fullmatch(_EXPANSION, expansion)
    if found is None:
        raise UnsureError(f"the expansion `{expansion}`")
    return WordCertainty.PATH if found[1] in _HARMLESS_VARIABLES else WordCertainty.UNKNOWN


_ENTRY = r"(-[^=\[\s]+)(==|=|\[=\])?"
_ATTACHED_NUMBER = r"[0-9%/]*"
_BARE_NUMBER = r"-[0-9]+"

_Given = list[tuple[str, str | None]]  # option names, each with its value if one is known


class ProgramOptions(msgspec.Struct, frozen=True):
    """The options a program is allowed, and how strictly its words are read."""

    takes: dict[str, str]
    most: int | None = None  # operands; a further one might be a file to write
    first: bool = False  # options must stand before operands: programs differ in what follows
    clusters: bool = True
    attached: bool = True  # a short option may carry its value in the same word


class ParsedWords(msgspec.Struct, frozen=True):
    """The operands and options of a call."""

    operands: tuple[ShellWord, ...]
    names: frozenset[str]
    values: tuple[tuple[str, str], ...]


def make_name_set(text: str) -> frozenset[str]:
    """The words of a text as a set, so that a long list stays readable."""
    return frozenset(text.split())


def parse_options(
    spec: str, *, most: int | None = None, first: bool = False, clusters: bool = True, attached: bool = True
) -> ProgramOptions:
    """Read a table of options from its string form."""
    takes: dict[str, str] = {}
    for entry in spec.split():
        found = re.fullmatch(_ENTRY, entry)
        if found is None:
            raise ValueError(f"{entry!r} is not an entry of an option table")
        takes[found[1]] = found[2] or ""
    return ProgramOptions(takes, most, first, clusters, attached)


def parse_words(words: Sequence[ShellWord], table: ProgramOptions) -> ParsedWords:
    """Tell options, their values and operands apart; unsure about anything not in the table."""
    operands: list[ShellWord] = []
    given: _Given = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        dashed = word.text != "-" and word.text.startswith("-")
        if table.first and operands and dashed:
            raise UnsureError(f"the option `{word.text}` after an operand")
        if word.text == "--" and word.kind is WordCertainty.FIXED:
            operands += [check_operand(rest, after_dashes=True) for rest in words[at:]]
            break
        if not dashed:
            operands.append(check_operand(word))
            continue
        found, follow = _parse_option(word, table)
        given += found
        given += [(found[-1][0], _check_value(word, next_)) for next_ in words[at : at + follow]]
        at += follow
    if table.most is not None:
        _check_count(operands, table.most)
    return ParsedWords(
        tuple(operands),
        frozenset(name for name, _ in given),
        tuple((name, value) for name, value in given if value is not None),
    )


def _check_count(operands: Sequence[ShellWord], most: int) -> None:
    if len(operands) > most:
        raise UnsureError(f"`{operands[most].source}` is one operand too many")
    for word in operands:
        if word.kind is WordCertainty.GLOB:
            raise UnsureError(f"`{word.source}` may match more than one file")


def check_operand(word: ShellWord, *, after_dashes: bool = False) -> ShellWord:
    """The word itself when it cannot turn into an option."""
    if word.kind > WordCertainty.GLOB:
        raise UnsureError(f"`{word.source}` may expand to options")
    if word.kind is WordCertainty.GLOB and not after_dashes and word.text[:1] in {"*", "?", "[", "-"}:
        raise UnsureError(f"`{word.source}` may match a file whose name is an option (use `./`)")
    if word.kind is not WordCertainty.GLOB and after_dashes and len(word.text) > 1 and word.text[0] == "-":
        raise UnsureError(f"`{word.source}` looks like an option")
    return word


def find_fixed_text(word: ShellWord) -> str:
    """The text of a word that cannot expand to anything else."""
    if word.kind is not WordCertainty.FIXED:
        raise UnsureError(f"`{word.source}` is not literal")
    return word.text


def _check_value(option: ShellWord, value: ShellWord) -> str:
    if value.kind is not WordCertainty.FIXED or value.text.startswith("-"):
        raise UnsureError(f"`{value.source}` as the value of `{option.source}`")
    return value.text


def _parse_option(word: ShellWord, table: ProgramOptions) -> tuple[_Given, int]:
    """The options in one word, and the number of following words that are values."""
    text = find_fixed_text(word)
    if text in table.takes:
        return [(text, None)], {"=": 1, "==": 2}.get(table.takes[text], 0)
    if text.startswith("--"):
        name, given, value = text.partition("=")
        if not given or table.takes.get(name) not in {"=", "[=]"}:
            raise _make_unknown_option(name)
        return [(name, value)], 0
    if "-#" in table.takes and re.fullmatch(_BARE_NUMBER, text):
        return [("-#", None)], 0
    return _parse_cluster(text, table)


def _parse_cluster(text: str, table: ProgramOptions) -> tuple[_Given, int]:
    """The options in a word such as `-nrk2`: every letter must be known."""
    given: _Given = []
    for place, letter in enumerate(text[1:], start=2):
        name, rest = f"-{letter}", text[place:]
        takes = table.takes.get(name)
        if takes == "[=]" and re.fullmatch(_ATTACHED_NUMBER, rest):
            return [*given, (name, rest)], 0
        if takes == "=" and rest and table.attached:
            return [*given, (name, rest)], 0
        if takes == "=" and not rest:
            return [*given, (name, None)], 1
        if takes is None:
            raise _make_unknown_option(name)
        if takes or (rest and not table.clusters):
            raise _make_unknown_option(text)
        given.append((name, None))
    return given, 0


def _make_unknown_option(name: str) -> UnsureError:
    return UnsureError(f"the option `{name}` is not known to be harmless")
