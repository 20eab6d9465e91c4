"""The question before a tool runs: the call, the reason, the answers. "Yes" counts when all was shown."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from sevenfold.cli.chat.call_display import (
    MOST_WORDS,
    CallLine,
    CallText,
    describe_question,
    describe_rules,
)
from sevenfold.cli.output import format_count, get_columns, make_printable, to_one_line, wrap_text
from sevenfold.cli.themes import Theme
from sevenfold.tools.permissions import EDITORS
from sevenfold.tools.toolbox import PermissionAnswer, PermissionQuestion, RefusalReason

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

LEAST_SHOWN: Final = 6  # Lines of a call on the first screen, however low it is
_NO: Final = re.compile(r"(?is)(?:no|n)\b[\s,;:.-]*(?:because\b)?[\s,;:]*(.*)")
AnswerWord: TypeAlias = Literal["more", "yes", "no", "always", "project", "never"]
_WORDS: Final[dict[str, AnswerWord]] = {
    "": "more",
    "m": "more",
    "more": "more",
    "y": "yes",
    "yes": "yes",
    "a": "always",
    "always": "always",
    "p": "project",
    "v": "never",
    "never": "never",
}


class PermissionChoice(msgspec.Struct, frozen=True):
    """The user's answer, and True if its rules are to be kept for the project."""

    answer: PermissionAnswer
    keeps: bool = False


class CallPages:
    """The lines of a call, and which of them were on the screen."""

    def __init__(self, lines: tuple[CallLine, ...], last: int, other: int) -> None:
        """`last`: lines that fit on the last page, above all answers; `other`: on a page before it."""
        self._lines = lines
        self._last, self._other = max(LEAST_SHOWN, last), max(LEAST_SHOWN, other)
        self._unseen = dict.fromkeys(range(len(lines)))

    @property
    def unseen_count(self) -> int:
        """The number of lines that were not on the screen yet."""
        return len(self._unseen)

    def take_first(self) -> list[CallLine]:
        """Everything, or head, tail and the lines that matter most, with notes on the gaps."""
        count = len(self._lines)
        if count <= self._last:
            return self._take(list(range(count)))
        third = min(count, self._other - 2) // 3
        chosen = {*range(third), *range(count - third, count)}
        for kinds in (("cause",), ("added", "removed"), ("", "note")):
            found = [at for at, line in enumerate(self._lines) if line.kind in kinds and at not in chosen]
            chosen.update(found[: max(0, 3 * third - len(chosen))])
        return self._take(sorted(chosen))

    def take_next(self) -> list[CallLine]:
        """The next lines that were not shown, as many as fit."""
        unseen = list(self._unseen)
        fitting = len(unseen) if len(unseen) <= self._last else min(self._other, len(unseen) - self._last)
        return self._take(unseen[:fitting])

    def _take(self, chosen: list[int]) -> list[CallLine]:
        """These lines; a note stands where others are missing between them."""
        taken: list[CallLine] = []
        last = -1 if chosen and chosen[0] == 0 else None
        for at in chosen:
            self._unseen.pop(at, None)
            if last is None:
                taken.append(CallLine(f"  from line {at + 1} of {len(self._lines)}:", "note"))
            elif at > last + 1:
                taken.append(CallLine(f"  … {format_count(at - last - 1, 'line')} …", "note"))
            taken.append(self._lines[at])
            last = at
        return taken


class PermissionPrompt:
    """Asks one question at the terminal."""

    def __init__(self, question: PermissionQuestion, theme: Theme, place: str | None) -> None:
        """`place`: where the project's rules are kept, in words; empty: only those that deny can be.

        None: no rule is kept, because the call is about another folder.
        """
        self._question, self._theme, self._place = question, theme, place
        self._columns = get_columns() - 1
        self._call: CallText = describe_question(question, self._columns)
        rows = shutil.get_terminal_size().lines - 6  # two blank lines, the title, the question, the footer
        rows -= len(self._format_notes().splitlines())
        last, other = (rows - len(self._format_answers(unseen).splitlines()) for unseen in (0, 1))
        self._pages = CallPages(self._call.lines, last, other)

    async def ask(self, prompts: PromptSession[str]) -> PermissionChoice:
        """Ask until there is an answer. The end of the input is a no; Ctrl-C is the caller's."""
        title = wrap_text(self._call.title, self._columns, "  ")
        self._print("", self._paint(title, "title"), *self._paint_lines(self._pages.take_first()))
        verb = "Write it?" if self._question.use.name in EDITORS else "Run it?"
        prompts.app.erase_when_done = True  # of the possible answers the chosen one stays
        try:
            while True:
                answers = self._format_answers(self._pages.unseen_count)
                text = "\n".join(["", self._format_notes(), answers, f"{verb} "])
                said = await prompts.prompt_async(text, handle_sigint=False)
                if (choice := self._read_answer(said.strip())) is not None:
                    self._print(f"{verb} {make_printable(said.strip())}")
                    return choice
        except EOFError:
            return PermissionChoice(False)
        finally:
            prompts.app.erase_when_done = False

    def _read_answer(self, text: str) -> PermissionChoice | None:
        """The answer; None: ask again."""
        if found := _NO.fullmatch(text):
            return PermissionChoice(RefusalReason(found[1].strip()) if found[1].strip() else False)
        word = _WORDS.get(text.lower())
        if word == "never" and self._question.never:
            return PermissionChoice("never", keeps=self._place is not None)
        if word == "more" and self._pages.unseen_count:
            self._print(*self._paint_lines(self._pages.take_next()))
        elif word in ("yes", "always", "project"):
            if self._pages.unseen_count:
                left = format_count(self._pages.unseen_count, "line")
                text = f"  not yet: {left} of it have not been on the screen"
                self._print(wrap_text(text, self._columns, "  "))
            elif word == "yes":
                return PermissionChoice(True)
            elif self._question.always and (word == "always" or self._place):
                return PermissionChoice("always", keeps=word == "project")
        return None

    def _format_notes(self) -> str:
        notes = [*self._call.notes, f"asked because: {to_one_line(self._question.reason, 2 * MOST_WORDS)}"]
        return "\n".join(wrap_text(f"  {note}", self._columns, "  ") for note in notes)

    def _format_answers(self, left: int) -> str:
        """The possible answers, one in a line."""
        question, rows = self._question, list[tuple[str, str]]()
        if left:
            verb = "has" if left == 1 else "have"
            rows.append(
                ("Enter", f"shows more: {format_count(left, 'line')} {verb} not been on the screen yet")
            )
        else:
            rows.append(("y", "yes, this once"))
        rows.append(("n", "no; 'no, because …' tells the model why"))
        if question.always and not left:
            covers = describe_rules(question.always, question.use)
            rows.append(("a", f"always in this session: {covers}"))
            if self._place:
                rows.append(("p", f"always in this project: the same, {self._place}"))
        if question.never:
            covers = describe_rules(question.never, question.use, denies=True)
            where = "session" if self._place is None else "project"
            rows.append(("v", f"never in this {where}: {covers}"))
        width = max(len(key) for key, _ in rows)
        lines = (f"  {key:<{width}}  {text}" for key, text in rows)
        return "\n".join(wrap_text(line, self._columns, " " * (width + 2)) for line in lines)

    def _paint_lines(self, lines: list[CallLine]) -> list[str]:
        return [self._paint(line.text, line.kind) for line in lines]

    def _paint(self, text: str, kind: str) -> str:
        code = self._theme.call.get(kind)
        return f"{code}{text}\x1b[0m" if code else text

    def _print(self, *lines: str) -> None:
        print(*lines, sep="\n", flush=True)
