"""The form of the notes: fixed sections with free text in them.

    # Current state                     the heading, fixed
    _What is being worked on …_         its description, fixed
                                        everything else is the section's own

A form is read from a template. A text is of that form when it has each heading once, in order, with its
description below. Other lines that look like headings are text like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from sevenfold.facts import clipped
from sevenfold.quotes import level
from sevenfold.tokens import TEXT_RATE, byte_length, estimate, scaled

_HEADING: Final = re.compile(r"#{1,3} +\S.*")
_ITALIC: Final = re.compile(r"_[^_].*_|\*[^*].*\*")
_FENCE: Final = re.compile(r" {0,3}(?:```|~~~)")
_NOTE: Final = 120
"""Bytes that it takes to say how much was left out."""


class Misshapen(ValueError):
    """A text is not of the form; the message says what was changed."""


class Section(msgspec.Struct, frozen=True):
    """The two fixed lines of a section; the second may be missing in a template of the user's."""

    heading: str
    description: str = ""

    @property
    def title(self) -> str:
        return self.heading.lstrip("#").strip()


class Limits(msgspec.Struct, frozen=True):
    """Tokens that a section and all sections together should hold at most."""

    section: int
    total: int

    @classmethod
    def of(cls, section: int, total: int, window: int) -> Limits:
        return cls(max(1, int(scaled(section, window))), max(1, int(scaled(total, window))))


class Form(msgspec.Struct, frozen=True):
    """The sections of a template, and what stands in the template besides them."""

    template: str
    preamble: str
    sections: tuple[Section, ...]

    @classmethod
    def of(cls, template: str) -> Form:
        """The form that a template gives; `Misshapen` when it has no sections, or one of them twice."""
        lines = normal(template).split("\n")
        starts = list(_headings(lines))
        if not starts:
            raise Misshapen("it has no sections: begin each with a line such as '# Current state'")
        sections = tuple(Section(lines[at].rstrip(), _description(lines, at)) for at in starts)
        named = [section.heading for section in sections]
        for heading in named:
            if named.count(heading) > 1:
                raise Misshapen(f"it has the section '{heading}' more than once")
        preamble = "\n".join(lines[: starts[0]]).strip()
        return cls("\n".join(lines).strip() + "\n", preamble, sections)

    def bodies(self, text: str) -> tuple[str, ...]:
        """What stands in each section; `Misshapen` when a fixed line was changed."""
        known = {section.heading: n for n, section in enumerate(self.sections)}
        found: list[int] = []
        parts: list[list[str]] = [[]]
        for line in normal(text).split("\n"):
            if (at := known.get(line.rstrip())) is None:
                parts[-1].append(line)
            else:
                found.append(at)
                parts.append([])
        self._check(found)
        if "\n".join(parts[0]).strip() != self.preamble:
            raise Misshapen("what stands before the first heading was changed")
        return tuple(map(_body, self.sections, parts[1:]))

    def _check(self, found: Sequence[int]) -> None:
        for n, section in enumerate(self.sections):
            if (times := found.count(n)) != 1:
                wrong = "is missing or was changed" if not times else "stands there more than once"
                raise Misshapen(f"the heading '{section.heading}' {wrong}")
        for n, at in enumerate(found):
            if at != n:
                raise Misshapen(f"the section '{self.sections[at].heading}' was moved")

    def empty(self, text: str) -> bool:
        """Whether nothing was noted yet."""
        return self.bodies(text) == self.bodies(self.template)

    def written(self, bodies: Sequence[str]) -> str:
        """The text with these in its sections."""
        parts = [self.preamble] if self.preamble else []
        for section, body in zip(self.sections, bodies, strict=True):
            lines = (section.heading, section.description, body.strip("\n"))
            parts.append("\n".join(line for line in lines if line))
        return "\n\n".join(parts) + "\n"

    def too_long(self, text: str, limits: Limits) -> list[str]:
        """What is over its limit, in words, for whoever is to shorten it."""
        sizes = [estimate(body) for body in self.bodies(text)]
        out = [
            f"'{section.title}' holds about {size:,} tokens, more than {limits.section:,}"
            for section, size in zip(self.sections, sizes, strict=True)
            if size > limits.section
        ]
        if (total := sum(sizes)) > limits.total:
            out.append(f"all sections hold about {total:,} tokens, more than {limits.total:,}")
        return out

    def cut_to(self, text: str, limits: Limits, where: str = "") -> list[str]:
        """What stands in each section, cut to size; `where` says where the rest can be found."""
        bodies = self.bodies(text)
        sizes = [byte_length(body) for body in bodies]
        section, total = (int(tokens / TEXT_RATE) for tokens in (limits.section, limits.total))
        most = min(section, level([min(size, section) for size in sizes], total))
        return [
            body if size <= most else clipped(body, max(0, most - _NOTE), where)
            for body, size in zip(bodies, sizes, strict=True)
        ]

    def shown(self, bodies: Sequence[str]) -> str:
        """The sections that say something, for a reader: descriptions are for who writes."""
        pairs = zip(self.sections, bodies, strict=True)
        return "\n\n".join(f"{section.heading}\n{body}" for section, body in pairs if body)


def normal(text: str) -> str:
    """With line ends as we write them, and without the mark some editors put in front."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _headings(lines: Sequence[str]) -> Iterator[int]:
    fenced = False
    for at, line in enumerate(lines):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and _HEADING.fullmatch(line):
            yield at


def _description(lines: Sequence[str], heading: int) -> str:
    for line in lines[heading + 1 :]:
        if line.strip():
            return line.strip() if _ITALIC.fullmatch(line.strip()) else ""
    return ""


def _body(section: Section, lines: Sequence[str]) -> str:
    if not section.description:
        return "\n".join(lines).strip()
    for at, line in enumerate(lines):
        if line.strip():
            if line.strip() == section.description:
                return "\n".join(lines[at + 1 :]).strip()
            break
    raise Misshapen(f"the description under '{section.heading}' is missing or was changed")
