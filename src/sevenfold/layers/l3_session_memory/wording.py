"""The template and the instruction: ours, or the user's own from `<home>/session-memory/config`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from sevenfold.errors import StorageFailure
from sevenfold.events import Emit, Notice
from sevenfold.layers.l3_session_memory.notes import Form, Limits, Misshapen, normal
from sevenfold.storage.files import read_if_there

CONFIG: Final = "session-memory/config"
LARGEST: Final = 64 << 10
"""Bytes of a template or an instruction of the user's."""
_HERE: Final = Path(__file__).parent
_NOTES, _PATH = "{{currentNotes}}", "{{notesPath}}"
_PLACES: Final = re.compile(re.escape(_NOTES) + "|" + re.escape(_PATH))
_FORGOTTEN: Final = (
    (_PATH, "The file is {{notesPath}}."),
    (_NOTES, "This is what it holds now:\n\n<notes>\n{{currentNotes}}\n</notes>"),
)
_BY_TEXT: Final = (
    "There is no Edit tool in this conversation. Instead, answer with the sections that change and "
    "nothing else, each as\n\n"
    '<section title="Current state">\nall of its new text, without heading and description\n</section>'
    "\n\nSections that you leave out stay as they are."
)
_SECTION: Final = re.compile(r'<section title="([^"\n]+)">\n?(.*?)</section>', re.DOTALL)


class Wording(msgspec.Struct, frozen=True):
    """What the notes look like, and how the model is asked to keep them."""

    form: Form
    instruction: str

    @classmethod
    def load(cls, home: Path | None, emit: Emit) -> Wording:
        """The user's files where they can be used; what is wrong with one is said, and ours is taken."""
        form = Form.of(_ours("template"))
        if own := _own(home, "template", emit):
            path, text = own
            try:
                form = Form.of(text)
            except Misshapen as why:
                _unused(path, str(why), emit)
        instruction = _own(home, "prompt", emit)
        return cls(form, instruction[1] if instruction else _ours("prompt"))

    def asking(self, notes: str, path: Path, limits: Limits, *, edits: bool, last: str = "") -> str:
        """The instruction for an update. `last` is why the one before was not taken."""
        parts = [self.instruction.strip()]
        parts += [text for place, text in _FORGOTTEN if place not in self.instruction]
        values = {_NOTES: notes.strip(), _PATH: str(path)}
        asked = _PLACES.sub(lambda found: values[found[0]], "\n\n".join(parts))
        rest = [
            f"No section may hold more than about {limits.section:,} tokens, and all of them together "
            f"no more than {limits.total:,}."
        ]
        if offenders := self.form.too_long(notes, limits):
            rest.append("Too long now, and to be shortened first: " + "; ".join(offenders) + ".")
        if last:
            rest.append(f"The last update was not taken: {last}.")
        if not edits:
            rest.append(_BY_TEXT)
        return "\n\n".join([asked, *rest])

    def told(self, notes: str, answer: str) -> str:
        """The notes with the sections that an answer gives in words."""
        given = {title.strip(): body.strip() for title, body in _SECTION.findall(normal(answer))}
        bodies = self.form.bodies(notes)
        titles = [section.title for section in self.form.sections]
        return self.form.written(
            [given.get(title, body) for title, body in zip(titles, bodies, strict=True)]
        )


def _ours(name: str) -> str:
    return (_HERE / f"{name}.md").read_text(encoding="utf-8")


def _own(home: Path | None, name: str, emit: Emit) -> tuple[Path, str] | None:
    if home is None:
        return None
    path = home / CONFIG / f"{name}.md"
    try:
        data = read_if_there(path, LARGEST)
        text = None if data is None else normal(data.decode("utf-8"))
    except StorageFailure as error:
        _unused(path, str(error), emit)
        return None
    except UnicodeDecodeError:
        _unused(path, "it is not UTF-8 text", emit)
        return None
    if text is None:
        return None
    if not text.strip() or "\0" in text:
        _unused(path, "it is empty" if not text.strip() else "it is not text", emit)
        return None
    return path, text


def _unused(path: Path, why: str, emit: Emit) -> None:
    emit(Notice(f"{path} is not used, and ours is: {why}", "warning"))
