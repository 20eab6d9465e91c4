"""Links in markdown: `[[name]]` between memories, and `[title](file.md)` in the index.

What stands in code is no link: shells, TOML and matrices are full of double brackets.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote

import msgspec

_FENCE: Final = re.compile(r"^[ ]{0,3}(`{3,}|~{3,})", re.MULTILINE)
_SPAN: Final = re.compile(r"(?<!`)(`{1,3})(?!`)([^`\n][^\n]{0,400}?)(?<!`)\1(?!`)")
_WIKI: Final = re.compile(
    r"(?<![\[!])\[\[(?![\s\[])([^\[\]|#\n]{1,200})(?:[|#][^\[\]\n]{0,200})?\]\](?!\])"
)
_INLINE: Final = re.compile(
    r"""(?<![!\\])\[(?P<title>(?:[^\[\]\\]|\\.|\[[^\[\]]{0,100}\]){0,500})\]"""
    r"""\([ \t]*(?:<(?P<angled>[^<>\n]{1,600})>"""
    r"""|(?P<bare>(?:[^()<>\s]|[ \t](?!["'])|\([^()\n]{0,100}\)){1,600}?))"""
    r"""[ \t]*(?:"[^"\n]{0,300}"|'[^'\n]{0,300}')?[ \t]*\)"""
)
_ELSEWHERE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//|[/~\\]|#")
_RISKY: Final = re.compile(r"[%#?<>\"\\\x00-\x1f\x7f]")
_LETTER: Final = re.compile(r"[^\r\n]")


class MarkdownLink(msgspec.Struct, frozen=True):
    """A link to a markdown file below the folder; the places are offsets into the line."""

    file: str
    title: str
    start: int
    end: int


def blank_out_code(text: str) -> str:
    """The same text with code blanked out, every other character where it was."""
    return _SPAN.sub(_blank, _without_fences(text)) if "`" in text or "~~~" in text else text


def _without_fences(text: str) -> str:
    """A fence that is never closed is no fence: it would hide everything that is added later."""
    kept: list[str] = []
    at = 0
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
            continue
        end = text.find("\n", fence.end())
        end = len(text) if end < 0 else end
        same = fence[1][0] == opened[1][0] and len(fence[1]) >= len(opened[1])
        if same and not text[fence.end() : end].strip():
            kept += [text[at : opened.start()], _blanked(text[opened.start() : end])]
            at, opened = end, None
    return "".join([*kept, text[at:]])


def _blank(match: re.Match[str]) -> str:
    return _blanked(match.group())


def _blanked(text: str) -> str:
    return _LETTER.sub(" ", text)


def find_wiki_links(text: str) -> tuple[str, ...]:
    """The names in `[[name]]`, `[[name|shown]]` and `[[name#part]]`, each once, in order."""
    if "[[" not in text:
        return ()
    return tuple(dict.fromkeys(found[1].strip() for found in _WIKI.finditer(blank_out_code(text))))


def find_file_links(line: str) -> list[MarkdownLink]:
    """The links of one line (code already blanked out) that lead to a markdown file in the folder."""
    if "](" not in line:
        return []
    links = []
    for found in _INLINE.finditer(line):
        file = parse_local_file(found["angled"] or found["bare"] or "")
        if file:
            links.append(MarkdownLink(file, found["title"].strip(), found.start(), found.end()))
    return links


def find_name_links(line: str) -> list[MarkdownLink]:
    """The `[[name]]`s of one line (code already blanked out)."""
    if "[[" not in line:
        return []
    return [MarkdownLink(one[1].strip(), one[1].strip(), *one.span()) for one in _WIKI.finditer(line)]


def format_link_target(file: str) -> str:
    """How a link to this file is written, so that it is read back as this file."""
    path = _RISKY.sub(lambda found: quote(found.group()), file)
    if re.search(r"[\s()'\"]", path):
        return f"<{path}>"
    return path


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
