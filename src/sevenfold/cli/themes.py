"""The colours of the chat: dark, light and plain."""

from __future__ import annotations

from typing import Final

import msgspec


class Theme(msgspec.Struct, frozen=True, kw_only=True):
    """Colours for one kind of background; `plain` has none."""

    name: str
    plain: bool = False
    status: dict[str, str]  # The escape code of a status line, by its level
    call: dict[str, str] = {}  # The escape code of a line of a call that is asked about, by its kind
    code: str = "ansi_dark"  # The colours of code in replies, by rich's name
    markdown: dict[str, str] = {}  # Styles of rich that are another
    editor: dict[str, str] = {}  # Styles of prompt_toolkit that are another


DEFAULT_THEME: Final = "dark"
THEMES: Final = {
    "dark": Theme(
        name="dark",
        status={"progress": "\x1b[2m", "info": "\x1b[36m", "warning": "\x1b[33m"},
        call={
            "title": "\x1b[1m",
            "added": "\x1b[32m",
            "removed": "\x1b[31m",
            "cause": "\x1b[1;33m",
            "note": "\x1b[2m",
        },
        editor={
            "bottom-toolbar": "noreverse ansibrightblack",
            "completion-menu": "bg:#303030 #d0d0d0",
            "completion-menu.completion.current": "noreverse bg:#005f87 #ffffff",
            "completion-menu.meta.completion": "bg:#303030 #8a8a8a",
            "completion-menu.meta.completion.current": "bg:#005f87 #d0d0d0",
        },
    ),
    "light": Theme(
        name="light",
        status={"progress": "\x1b[2m", "info": "\x1b[34m", "warning": "\x1b[35m"},
        call={
            "title": "\x1b[1m",
            "added": "\x1b[38;5;28m",
            "removed": "\x1b[38;5;124m",
            "cause": "\x1b[1;35m",
            "note": "\x1b[2m",
        },
        code="ansi_light",
        markdown={
            "markdown.code": "bold blue",
            "markdown.code_block": "blue",
            "markdown.item.number": "blue",
        },
        editor={
            "bottom-toolbar": "noreverse #585858",
            "completion-menu": "bg:#e4e4e4 #303030",
            "completion-menu.completion.current": "noreverse bg:#0087af #ffffff",
            "completion-menu.meta.completion": "bg:#e4e4e4 #6c6c6c",
            "completion-menu.meta.completion.current": "bg:#0087af #eeeeee",
        },
    ),
    "plain": Theme(name="plain", plain=True, status={}),
}


def find_theme(name: str) -> tuple[Theme, str]:
    """The theme of this name, or the usual one and a message that says why."""
    if (found := THEMES.get(name.strip().lower())) is not None:
        return found, ""
    known = ", ".join(THEMES)
    return THEMES[DEFAULT_THEME], f"there is no theme {name!r}; {DEFAULT_THEME} is used ({known} are known)"
