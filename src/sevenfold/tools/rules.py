"""Permission rules as people write them: `Bash(git status:*)`, `Edit(./src/**)`, `mcp__server__*`.

Tool                  every use of the tool
Bash(git status:*)    commands that begin with these words
Bash(npm test)        exactly this command; `*` inside stands for anything
Read(./src/**)        reading by Read, Grep and Glob
Edit(~/notes/**)      changes by Edit and Write
WebFetch(domain:x.y)  pages of this host
mcp__server__*        every tool of a server
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from sevenfold.errors import SettingsError
from sevenfold.messages import ToolUse
from sevenfold.tools import command_rules, path_rules
from sevenfold.tools.path_rules import Place
from sevenfold.tools.paths import protected, secret

READERS: Final = frozenset({"Read", "Grep", "Glob"})
EDITORS: Final = frozenset({"Edit", "Write"})
_FORM: Final = re.compile(
    r"(?P<tool>[A-Za-z][\w-]*(?:\.[\w-]+)*\*?)(?:\((?P<about>.*)\))?", re.DOTALL
)


class Rule(msgspec.Struct, frozen=True):
    """One rule: a tool, and what it is about; `None` means everything."""

    text: str
    tool: str
    about: str | None = None

    @classmethod
    def parse(cls, text: str) -> Rule:
        found = _FORM.fullmatch(text.strip())
        if found is None:
            raise _wrong(text, "write Tool or Tool(what), for instance Bash(npm test)")
        tool, about = found["tool"], found["about"]
        if "*" in tool and not tool.startswith("mcp__"):
            raise _wrong(text, "only the names of mcp__ tools may end in *")
        if about is not None and not about.strip():
            raise _wrong(text, f"the brackets are empty; write {tool} for every use of it")
        if about is not None:
            _check_about(text, tool, about)
        return cls(text.strip(), tool, None if about in (None, "*", "**") else about)

    @classmethod
    def exactly(cls, command: str) -> Rule:
        return cls.parse(f"Bash({command_rules.exactly(command)})")

    @property
    def names_secret(self) -> bool:
        """Whether the rule speaks of files that hold secrets, and does not merely include them."""
        return self.about is not None and secret(Path(self.about.removesuffix("/**")))

    @property
    def names_protected(self) -> bool:
        return self.about is not None and protected(Path(self.about.removesuffix("/**")))

    def is_for(self, name: str, *, loose: bool) -> bool:
        """Whether the rule speaks of this tool at all."""
        if self.tool == name:
            return True
        if self.tool.startswith("mcp__"):
            whole_server = self.tool.count("__") == 1 and not self.tool.endswith("*")
            start = f"{self.tool}__" if whole_server else self.tool.removesuffix("*")
            return name.startswith(start) and start != self.tool
        if self.tool == "Read":
            return name in READERS
        return name in EDITORS and (self.tool == "Edit" or (loose and self.tool == "Write"))

    def fits(
        self, use: ToolUse, place: Place | None, root: Path, home: Path, *, loose: bool
    ) -> bool:
        """Whether the rule means this use of any tool but Bash."""
        if not self.is_for(use.name, loose=loose):
            return False
        if self.about is None:
            return True
        if self.tool == "WebFetch":
            return _host_fits(self.about, str(use.input.get("url", "")))
        return place is not None and path_rules.fits(self.about, place, root, home, loose=loose)


def _check_about(text: str, tool: str, about: str) -> None:
    if tool == "Bash":
        if about not in ("*", "**") and (wrong := command_rules.check(about)):
            raise _wrong(text, wrong)
    elif tool == "WebFetch":
        if not re.fullmatch(r"domain:[\w.*-]+", about):
            raise _wrong(text, "write WebFetch(domain:example.com)")
    elif tool in READERS | EDITORS:
        if "\0" in about:
            raise _wrong(text, "a path cannot hold a NUL character")
        braces, stars = about.count("{"), re.findall(r"\*+/?", about)
        deep = sum(star.startswith("**") for star in stars)
        if braces > 4 or deep > 4 or stars.count("**") > 2 or (braces and len(stars) > 3):
            raise _wrong(text, "it has too many patterns; write several rules")
    else:
        raise _wrong(text, f"{tool} takes no brackets; write {tool} alone")


def _wrong(text: str, why: str) -> SettingsError:
    return SettingsError(f"the permission rule {text!r} cannot be understood: {why}")


def _host_fits(about: str, url: str) -> bool:
    try:
        host = (urlsplit(url).hostname or "").rstrip(".").lower()
    except ValueError:
        return False
    wanted = about.removeprefix("domain:").lower()
    if wanted.startswith("*."):
        return host.endswith(wanted[1:])
    return host == wanted
