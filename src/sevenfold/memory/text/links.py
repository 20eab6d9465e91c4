"""Links in markdown: `[[name]]` between memories, and `[title](file.md)` in the index.

What stands in code is no link: shells, TOML and matrices are full of double brackets.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from sevenfold.memory.folder.names import make_file_key, make_slug
from sevenfold.memory.text.markdown import blank_out_code

WIKI: Final = re.compile(r"(?<![\[!])\[\[(?![\s\[])([^\[\]|#\n]{1,200})([|#][^\[\]\n]{0,200})?\]\](?!\])")
"""`[[name]]`, and what may stand behind the name: `|shown` or `#part`."""
_INLINE: Final = re.compile(
    r"""(?<![!\\])\[(?P<title>(?:[^\[\]\\]|\\.|\[[^\[\]]{0,100}\]){0,500})\]"""
    r"""\([ \t]*(?:<(?P<angled>[^<>\n]{1,600})>"""
    r"""|(?P<bare>(?:[^()<>\s]|[ \t](?!["'])|\([^()\n]{0,100}\)){1,600}?))"""
    r"""[ \t]*(?:"[^"\n]{0,300}"|'[^'\n]{0,300}')?[ \t]*\)"""
)
_ELSEWHERE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//|[/~\\]|#")
_RISKY: Final = re.compile(r"[%#?<>\"\\\x00-\x1f\x7f]")


class MarkdownLink(msgspec.Struct, frozen=True):
    """A link to a markdown file below the folder; the places are offsets into the line."""

    file: str
    title: str
    start: int
    end: int


def find_wiki_links(text: str) -> tuple[str, ...]:
    """The names in `[[name]]`, `[[name|shown]]` and `[[name#part]]`, each once, in order."""
    if "[[" not in text:
        return ()
    return tuple(dict.fromkeys(found[1].strip() for found in WIKI.finditer(blank_out_code(text))))


def rewrite_wiki_links(text: str, rewrite: Callable[[str, str, re.Match[str]], str | None]) -> str:
    """The text with other links.

    `rewrite` gets the name, what stands behind it, and the place; a link for which it gives None stays.
    """
    if "[[" not in text:
        return text
    for found in reversed(list(WIKI.finditer(blank_out_code(text)))):
        if (new := rewrite(found[1].strip(), found[2] or "", found)) is not None:
            text = text[: found.start()] + new + text[found.end() :]
    return text


@lru_cache(maxsize=20_000)
def list_link_names(file: str, name: str) -> frozenset[str]:
    """Every way in which a link may name a memory, as `make_link_key` or `make_slug` gives it."""
    path = PurePosixPath(file)
    named = {name, file, file.removesuffix(".md"), path.name, path.stem}
    return frozenset({*map(make_link_key, named), make_slug(name), make_slug(path.stem)} - {""})


def make_link_key(name: str) -> str:
    """The name in a link, so that names that differ in case or in spaces around them are the same."""
    return make_file_key(name.strip())


def find_file_links(line: str) -> list[MarkdownLink]:
    """The links of one line (code already blanked out) that lead to a markdown file in the folder."""
    if "](" not in line:
        return []
    return [
        MarkdownLink(file, found["title"].strip(), *found.span())
        for found in _INLINE.finditer(line)
        if (file := parse_local_file(found["angled"] or found["bare"] or ""))
    ]


def find_name_links(line: str) -> list[MarkdownLink]:
    """The `[[name]]`s of one line (code already blanked out)."""
    if "[[" not in line:
        return []
    return [MarkdownLink(one[1].strip(), one[1].strip(), *one.span()) for one in WIKI.finditer(line)]


def format_link_target(file: str) -> str:
    """The target of a link to this file, written so that it is read back as this file."""
    path = _RISKY.sub(lambda found: quote(found.group()), file)
    return f"<{path}>" if re.search(r"[\s()'\"]", path) else path


def parse_local_file(target: str) -> str:
    """The file below the folder that a link means; empty for addresses, anchors and ways out."""
    target = target.strip()
    if _ELSEWHERE.match(target):
        return ""
    path = unquote(target.split("#", 1)[0].split("?", 1)[0]).strip()
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if ".." in parts or not path.lower().endswith(".md") or path.startswith(("/", "~")):
        return ""
    return "/".join(parts)
