"""Cuts the sentences out of a memory that do not pass, and leaves the rest as it was written.

A code fence goes with the sentence before it. A heading goes when nothing is left below it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from sevenfold.memory.guard.rules import split_clauses

NEW_BLOCK: Final = re.compile(r"\s*(?:[-*+•>|#]|\d{1,3}[.)]\s|\*\*|```|$)")
"""The beginning of a line that does not go on with the one before."""
_FENCE: Final = re.compile(r"\s*(?:```|~~~)")
_HEADING: Final = re.compile(r"\s*#{1,6}\s|[^.!?]*[:：]\W*$")
_SIGN: Final = re.compile(r"\s*(?:(?:[-*+•>]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?)?(?:\*\*[^*]{1,40}:\*\*\s+)?")
_SENTENCE: Final = re.compile(r"(?<=[.!?。！？])[\"”’)*_]*\s+|(?<=[。！？])")


def keep_passing_sentences(body: str, passes: Callable[[str], bool]) -> str:
    """The text without the sentences that have a clause which does not pass."""
    out: list[str] = []
    heading: list[str] = []
    whole = True  # Nothing was cut out of the last block with a text
    for block in _split_blocks(body):
        kept = _keep_sentences(block, passes)
        if _FENCE.match(block[0]) and not whole:
            kept = []
        elif block[0].strip():
            whole = kept == block
        if kept and kept[0].strip() and _HEADING.match(kept[0]) and not _FENCE.match(kept[0]):
            heading = kept
        elif any(line.strip() for line in kept):
            out += [*heading, *kept]
            heading = []
        else:
            (heading or out).extend(kept)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip("\n")


def _split_blocks(body: str) -> Iterator[list[str]]:
    """The lines that belong together: a paragraph, a bullet, a fence, an empty line."""
    block: list[str] = []
    fenced = False
    for line in body.split("\n"):
        fence = _FENCE.match(line) is not None
        if block and not fenced and (fence or NEW_BLOCK.match(line) or not block[-1].strip()):
            yield block
            block = []
        block.append(line)
        if fence and fenced:
            yield block
            block = []
        fenced ^= fence
    if block:
        yield block


def _split_sentences(text: str) -> Iterator[str]:
    """The sentences; a full stop in `code` ends none."""
    start = 0
    for end in _SENTENCE.finditer(text):
        if text.count("`", start, end.start()) % 2 == 0 and end.end() > start:
            yield text[start : end.end()].rstrip()
            start = end.end()
    if start < len(text):
        yield text[start:]


def _keep_sentences(block: list[str], passes: Callable[[str], bool]) -> list[str]:
    text = " ".join(line.strip() for line in block)
    sentences = [text] if _FENCE.match(text) else list(_split_sentences(text))
    kept = [one for one in sentences if all(map(passes, split_clauses(one)))]
    if len(kept) == len(sentences):
        return block
    if not kept:
        return []
    sign = _SIGN.match(block[0])
    first = (
        sign[0] if sign and kept[0] != sentences[0] else block[0][: len(block[0]) - len(block[0].lstrip())]
    )
    return [first + " ".join(kept)]
