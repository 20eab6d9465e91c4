"""Decides if a shell command only reads, by walking its syntax tree with an allow-list.

Everything that is not known to be harmless is "not read-only": an unknown kind of node, an unknown
program, an unknown option, a word that may expand to something else. The tree comes from
tree-sitter, which differs from bash in some cases: it keeps `-o out` in `<in -o out` as further targets of
the redirect, drops an escaped blank, and after some pipes takes the next line for more arguments. So the
walk also checks the bytes between two words and the characters of every word; where tree-sitter and bash
could differ, the answer is no.
"""

from __future__ import annotations

import functools
import re
import shlex
import unicodedata
from typing import TYPE_CHECKING

import msgspec

from sevenfold.tools.readonly_commands import READ_ONLY_COMMANDS, check_read_only
from sevenfold.tools.shell_syntax import (
    WORD_NODES,
    ShellWord,
    UnsureError,
    WordCertainty,
    decode_word,
    describe_node,
    make_name_set,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Language, Node

LONGEST = 10_000  # characters
_DEEPEST = 40  # nested groups

_BETWEEN_TOKENS = re.compile(rb"(?:[ \t\n]|[ \t]\\\n)*")
_BETWEEN_WORDS = re.compile(rb"(?:[ \t]|[ \t]\\\n)+")
_BETWEEN_STATEMENTS = re.compile(rb"[ \t]*\n[ \t\n]*")
# Characters that look like nothing, like a blank, or like other text than they are.
_DECEPTIVE = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"})
_BLANKS = frozenset(" \t\n")

# Nodes that hold statements, with the tokens that may stand between those.
_HOLDERS = {
    "program": frozenset({";"}),
    "list": frozenset({"&&", "||"}),
    "pipeline": frozenset({"|", "|&"}),
    "compound_statement": frozenset({"{", "}", ";"}),
    "subshell": frozenset({"(", ")", ";"}),
    "negated_command": frozenset({"!"}),
}
_REDIRECTS = frozenset({"file_redirect", "herestring_redirect"})
_TEST_PARTS = frozenset({"unary_expression", "binary_expression"})
_TEST_TOKENS = frozenset({"!", "=", "==", "!="})
# Words of the shell language that the grammar takes for program names.
_RESERVED = make_name_set(
    """
    ! { } [[ ]] case coproc do done elif else esac fi for function if in select then time until
    while
    """
)


class CommandVerdict(msgspec.Struct, frozen=True):
    """True if a command only reads, and the reason in one clause."""

    read_only: bool
    why: str


class _SimpleCommand(msgspec.Struct, frozen=True):
    """One simple command: its words, and its input redirects."""

    words: tuple[ShellWord, ...]
    inputs: tuple[str, ...] = ()


def classify_command(command: str) -> CommandVerdict:
    """Decide if running this in bash changes nothing; everything uncertain is not read-only."""
    return classify_within(command, READ_ONLY_COMMANDS)


def classify_within(command: str, allowed: frozenset[str]) -> CommandVerdict:
    """Like `classify_command`, and every program in it must be one of `allowed`."""
    try:
        for simple in _read_commands(command):
            check_read_only(simple.words, allowed)
    except UnsureError as unsure:
        return CommandVerdict(False, str(unsure))
    return CommandVerdict(True, "every command in it only reads")


_WORKED_OUT = frozenset({"command_substitution", "process_substitution", "ERROR"})
_MOST_DOUBTS = 200


def find_doubtful_spans(command: str) -> tuple[tuple[int, int], ...]:
    """The first parts of a command that are not known to only read, as character positions."""
    source = command.encode("utf-8")
    found: list[Node] = []
    waiting = [_parse_source(source)]
    while waiting and len(found) < _MOST_DOUBTS:
        node = waiting.pop()
        before = "ls " if node.type.endswith("_redirect") else ""
        if node.type in (*_HOLDERS, "redirected_statement") and node.named_child_count:
            waiting.extend(reversed(node.named_children))
        elif node.type != "comment" and not classify_command(before + _get_text(node, source)).read_only:
            found += _find_worked_out(node) or [node]
    return tuple((len(source[: n.start_byte].decode()), len(source[: n.end_byte].decode())) for n in found)


def _find_worked_out(node: Node) -> list[Node]:
    """The outermost substitutions below a node, in the order of the source."""
    found: list[Node] = []
    waiting = [node]
    while waiting:
        if (one := waiting.pop()).type in _WORKED_OUT:
            found.append(one)
        else:
            waiting.extend(reversed(one.children))
    return found


def _get_text(node: Node, source: bytes) -> str:
    return source[node.start_byte : node.end_byte].decode("utf-8")


def split_compound(command: str) -> tuple[str, ...] | None:
    """The simple commands of a compound one, or None when they are not certain.

    Each is given with single blanks between its words, needless quotes removed and redirects to
    nowhere left out, so that `git  "push" 2>&1` is compared with a rule as `git push`. None means
    that no rule may allow the command: it has a substitution, a loop, an assignment, a redirect
    to a file or something else whose effect a rule on program names does not cover.
    """
    try:
        return tuple(_format_simple(simple) for simple in _read_commands(command))
    except UnsureError:
        return None


def _format_simple(simple: _SimpleCommand) -> str:
    words = (
        word.text
        if word.kind is WordCertainty.FIXED and shlex.quote(word.text) == word.text
        else word.source
        for word in simple.words
    )
    return " ".join((*words, *simple.inputs))


def _read_commands(command: str) -> list[_SimpleCommand]:
    """The simple commands in order, or UnsureError."""
    _check_characters(command)
    source = command.encode("utf-8")
    root = _parse_source(source)
    if root.has_error:
        raise UnsureError("it cannot be parsed with certainty")
    _check_tokens(root, source)
    found = list(_read_statement(root, source, 0))
    if not found:
        raise UnsureError("there is no command in it")
    return found


def _check_characters(command: str) -> None:
    if len(command) > LONGEST:
        raise UnsureError(f"it is longer than {LONGEST:,} characters")
    for character in command:
        if character not in _BLANKS and unicodedata.category(character) in _DECEPTIVE:
            raise UnsureError(f"it contains the character U+{ord(character):04X}")


@functools.cache
def _load_language() -> Language:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Language(tree_sitter_bash.language())


def _parse_source(source: bytes) -> Node:
    import tree_sitter

    # A parser holds state and is cheap; only the language is shared between threads.
    return tree_sitter.Parser(_load_language()).parse(source).root_node


def _iterate_tokens(root: Node) -> Iterator[Node]:
    """The tokens in source order; a word counts as one, whatever is inside it."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.child_count == 0 or node.type in WORD_NODES:
            yield node
        else:
            waiting.extend(reversed(node.children))


def _check_tokens(root: Node, source: bytes) -> None:
    """Raise unless only blanks stand between the tokens, and comments are comments for bash, too."""
    end = 0
    for token in _iterate_tokens(root):
        if token is root:
            continue
        if token.is_missing or not _BETWEEN_TOKENS.fullmatch(source, end, token.start_byte):
            raise UnsureError("it cannot be parsed with certainty")
        if token.type == "comment" and source[token.start_byte - 1 : token.start_byte].strip():
            raise UnsureError("`#` in the middle of a word")
        end = token.end_byte
    if not _BETWEEN_TOKENS.fullmatch(source, end):
        raise UnsureError("it cannot be parsed with certainty")


def _read_statement(node: Node, source: bytes, depth: int) -> Iterator[_SimpleCommand]:
    if depth > _DEEPEST:
        raise UnsureError("it is nested too deeply")
    if node.type in _HOLDERS:
        yield from _read_group(node, source, depth)
    elif node.type == "redirected_statement":
        yield from _read_redirected(node, source, depth)
    elif node.type == "command":
        yield _read_simple(node, source)
    elif node.type == "test_command":
        yield _read_test(node, source)
    else:
        raise UnsureError(f"it contains {describe_node(node.type)}")


def _read_group(node: Node, source: bytes, depth: int) -> Iterator[_SimpleCommand]:
    if node.type == "subshell" and source.startswith(b"((", node.start_byte):
        raise UnsureError("it contains `((`")
    before: Node | None = None
    for child in node.children:
        if not child.is_named and child.type not in _HOLDERS[node.type]:
            raise UnsureError(f"it contains {describe_node(child.type)}")
        _check_separated(node, before, child, source)
        if child.is_named and child.type != "comment":
            yield from _read_statement(child, source, depth + 1)
        before = child


def _check_separated(holder: Node, before: Node | None, child: Node, source: bytes) -> None:
    """Raise unless statements end as for bash: at a token or a newline, with `{`, `}`, `!` apart."""
    if before is None or child.type == "comment":
        return
    start, end = before.end_byte, child.start_byte
    ends = child.is_named or child.type == "}"
    if before.is_named and ends and not _BETWEEN_STATEMENTS.fullmatch(source, start, end):
        raise UnsureError(f"the commands of {describe_node(holder.type)} run into each other")
    if before.type in {"{", "!"} and start == end:
        raise UnsureError(f"a word begins with `{before.type}`")
    if before.type in {"{", "("} and not child.is_named:
        raise UnsureError("an empty group")


def _read_redirected(node: Node, source: bytes, depth: int) -> Iterator[_SimpleCommand]:
    body, *redirects = node.children
    end = body.end_byte
    inputs: list[str] = []
    for redirect in redirects:
        if redirect.type not in _REDIRECTS:
            raise UnsureError(f"it contains {describe_node(redirect.type)}")
        _check_gap(source, end, redirect.start_byte, needed=False)
        inputs += _read_redirect(redirect, source)
        end = redirect.end_byte
    for simple in _read_statement(body, source, depth + 1):
        yield _SimpleCommand(simple.words, (*simple.inputs, *inputs))


def _read_simple(node: Node, source: bytes) -> _SimpleCommand:
    words: list[ShellWord] = []
    inputs: list[str] = []
    end: int | None = None
    for child in node.children:
        redirect = child.type in _REDIRECTS
        if end is not None:
            _check_gap(source, end, child.start_byte, needed=not redirect)
        end = child.end_byte
        if redirect:
            inputs += _read_redirect(child, source)
        elif child.type == "command_name":
            words.append(_read_program(child))
        elif child.type in WORD_NODES:
            words.append(decode_word(child))
        else:
            raise UnsureError(f"it contains {describe_node(child.type)}")
    if not words:
        raise UnsureError("it contains a redirect without a command")
    return _SimpleCommand(tuple(words), tuple(inputs))


def _read_program(node: Node) -> ShellWord:
    if node.child_count != 1 or node.children[0].type != "word":
        raise UnsureError("the name of a command is quoted or worked out")
    word = decode_word(node.children[0])
    if word.kind is not WordCertainty.FIXED or word.text != word.source or word.text in _RESERVED:
        raise UnsureError(f"the command name `{word.source}` is not a plain program name")
    return word


def _read_test(node: Node, source: bytes) -> _SimpleCommand:
    """`[ … ]` as the command it is."""
    tokens = list(_iterate_test_tokens(node))
    if tokens[0].type != "[" or tokens[-1].type != "]":
        raise UnsureError("it contains `[[` or `((`")
    words: list[ShellWord] = []
    end: int | None = None
    for token in tokens:
        if end is not None:
            _check_gap(source, end, token.start_byte, needed=True)
        end = token.end_byte
        if token.type in WORD_NODES:
            words.append(decode_word(token))
        else:
            text = source[token.start_byte : token.end_byte].decode("utf-8")
            words.append(ShellWord(text, text))
    return _SimpleCommand(tuple(words))


def _iterate_test_tokens(node: Node) -> Iterator[Node]:
    for child in node.children:
        if child.type in _TEST_PARTS:
            yield from _iterate_test_tokens(child)
        elif child.type in WORD_NODES | _TEST_TOKENS | {"[", "]", "test_operator"}:
            yield child
        else:
            raise UnsureError(f"a test contains {describe_node(child.type)}")


def _check_gap(source: bytes, start: int, end: int, *, needed: bool) -> None:
    if start == end and not needed:
        return
    if not _BETWEEN_WORDS.fullmatch(source, start, end):
        raise UnsureError("it is not certain where a word ends")


def _read_redirect(node: Node, source: bytes) -> list[str]:
    """The input of a redirect, as source text; unsure unless it goes nowhere or reads a file."""
    operator, *targets = [child for child in node.children if child.type != "file_descriptor"]
    descriptors = node.child_count - len(targets) - 1
    if len(targets) != 1 or targets[0].type not in WORD_NODES or descriptors > 1:
        raise UnsureError("a redirect has more than one target")
    _check_gap(source, operator.end_byte, targets[0].start_byte, needed=False)
    if descriptors and node.children[0].text not in {b"0", b"1", b"2"}:
        raise UnsureError("a redirect of another stream than the standard ones")
    target = decode_word(targets[0])
    if not _is_harmless_redirect(operator.type, target):
        raise UnsureError(f"the redirect `{operator.type} {target.source}`")
    return [f"{operator.type} {target.source}"] if operator.type.startswith("<") else []


def _is_harmless_redirect(operator: str, target: ShellWord) -> bool:
    match operator:
        case ">" | ">>" | "&>" | "&>>":
            return target.kind is WordCertainty.FIXED and target.text == "/dev/null"
        case ">&":
            return target.kind is WordCertainty.FIXED and target.text in {"1", "2"}
        case "<":
            # bash opens a connection for /dev/tcp/HOST/PORT
            device = "dev/" in target.text and target.text != "/dev/null"
            return target.kind <= WordCertainty.PATH and bool(target.text) and not device
        case "<<<":
            return target.kind <= WordCertainty.PATH
        case _:
            return False
