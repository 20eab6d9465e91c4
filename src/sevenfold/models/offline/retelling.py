"""A story retold in lines: what was asked, files and names, commands, errors, answers, where it stands.

The offline engine's notes and its summary are made of these. A line says first what it is about, so that
the line of an earlier telling about the same thing is known again: it is replaced, and all others stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from sevenfold.facts import File, clipped, line
from sevenfold.fidelity import names_in
from sevenfold.models.offline.story import Story
from sevenfold.quotes import level, room_of
from sevenfold.tokens import byte_length

MOST: Final = 60
"""Lines of one kind."""
LONGEST_PATH: Final = 500
QUOTE: Final = 1_200
"""Bytes of what the user said, where not all of it has to be there."""
CUT: Final = 40
"""Bytes that say how much was cut."""
LEAST: Final = 80
"""Bytes; what was said and would have to be cut below this is left out, and that is said."""
FEWER: Final = (20, 10, 6, 3)
"""Names that are told of each file, when all of them do not fit."""
KINDS: Final = ("files", "stored", "commands", "errors", "answers")
GAVE, MORE = " gave: ", " gave more than is shown: "
CAME_UP: Final = "Names that came up more than once: "
LEFT_OUT: Final = "- … (earlier ones are left out)"
SOME_LEFT_OUT: Final = "- … ({:,} of them are left out here)"
Render: TypeAlias = Callable[[int], str]
"""A text of at most so many bytes."""
_CORRECTS: Final = re.compile(
    r"^\s*(?:no\b|nope\b|not\b|don'?t\b|do not\b|stop\b|wait\b|actually\b|instead\b|wrong\b|that'?s not\b"
    r"|不要|不是|不对|别|错了|停)"
    r"|\b(?:should not|shouldn'?t|instead of|rather than|never|always|must not)\b"
    r"|应该|必须|改成|不能|一定要",
    re.IGNORECASE,
)
_CALL: Final = re.compile(r"`(?P<about>.+?)`(?= ×| worked| failed| gave)")
_FILE: Final = re.compile(
    r"(?P<about>\S.*?) \((?=changed|read)(?:changed (?P<changes>\d+)×)?(?:, )?(?:read (?P<reads>\d+)×)?\)"
    r"(?:: (?P<names>.*))?"
)
_ELSEWHERE: Final = ("(cleared", "[cleared", "</persisted-output")
_QUOTED: Final = re.compile(r"(?P<about>(?P<kind>To|The user:) “.*?”)(?=: |$)")
_BEGUN: Final = re.compile(r"^- (Asked for at the beginning: “.*”)$", re.MULTILINE)
_REQUEST: Final = re.compile(r"^.{0,8}primary request", re.IGNORECASE | re.MULTILINE)
"""Where a summary begins, after whatever thoughts stand before it."""


# --- lines ----------------------------------------------------------------------------------------------


def request(story: Story) -> list[str]:
    """The first thing that was asked for, and the last."""
    said = story.said
    if begun := _BEGUN.search(story.earlier):
        return [begun[1], *wanted(story)]
    first = [f"Asked for at the beginning: “{line(text, QUOTE // 2)}”" for text in said[:1]]
    return first if len(said) < 2 else [*first, *wanted(story)]


def wanted(story: Story) -> list[str]:
    said = story.said
    return [f"Asked for last: “{line(said[-1], QUOTE // 2)}”"] if said else []


def corrections(story: Story) -> list[str]:
    return [f"The user: “{line(t, 400)}”" for t in story.said[1:] if _CORRECTS.search(t)]


def files(story: Story) -> list[str]:
    """Those that were changed last, as they are needed most; with the names that were used of each."""
    ordered = sorted(story.facts.files, key=lambda one: one.changes > 0)
    return [_file(one, story.in_files.get(one.path, ())) for one in ordered[-MOST:]]


def _file(one: File, names: Sequence[str]) -> str:
    done = [f"changed {one.changes}×"] if one.changes else []
    done += [f"read {one.reads}×"] if one.reads else []
    defined = f": {', '.join(names)}" if names else ""
    return f"{line(one.path, LONGEST_PATH)} ({', '.join(done)}){defined}"


def commands(story: Story) -> list[str]:
    return [
        f"`{one.text}`{f' ×{one.times}' if one.times > 1 else ''} "
        f"{'failed' if one.failed else 'worked'}{f': {one.said}' if _printed(one.said) else ''}"
        for one in story.facts.commands[-MOST:]
    ]


def _printed(text: str) -> bool:
    """Whether a command printed this, and it does not only say where that is."""
    return bool(text) and not text.startswith(_ELSEWHERE)


def errors(story: Story) -> list[str]:
    return [
        f"`{one.call}`{GAVE}{one.error} ({'it worked later' if one.worked else 'still open'})"
        for one in story.facts.troubles[-MOST:]
    ]


def unsolved(story: Story) -> list[str]:
    open_ = [one for one in story.facts.troubles if not one.worked][-5:]
    return [f"Not seen to work since it failed: `{one.call}`, {one.error}" for one in open_]


def unanswered(story: Story) -> list[str]:
    """What the user said since the last answer."""
    last = max((n for n, one in enumerate(story.facts.said, 1) if one.answer), default=0)
    waiting = [one.text for one in story.facts.said[last:] if one.text.strip()]
    return [f"Not answered yet: “{line(text, 200)}”" for text in waiting]


def answers(story: Story) -> list[str]:
    said = [one for one in story.facts.said if one.answer]
    return [f"To “{line(one.text, 80)}”: {one.answer}" for one in said[-MOST:]]


def stored(story: Story) -> list[str]:
    return [f"`{one.call}`{MORE}{line(one.path, LONGEST_PATH)}" for one in story.facts.kept[-20:]]


def steps(story: Story) -> tuple[list[str], list[str]]:
    """What the assistant said it was doing, for all that was asked before and for what was asked last."""
    said, out = ["", *story.said], dict[int, list[str]]()
    told = line(story.facts.working, QUOTE)
    for step in story.steps[-2 * MOST :]:
        if step is story.steps[-1] and step.text.rstrip("…") in told:
            continue  # told as the last words
        asked = step.asked if step.asked < len(said) else 0
        known = out.setdefault(asked, [f"For “{line(said[asked], 80)}”:"] if asked else [])
        known.append(step.text)
    now = out.pop(len(said) - 1, [])
    return [text for lines in out.values() for text in lines], now


def state(story: Story) -> list[str]:
    """Where things stand: the last words, the last calls."""
    facts, out = story.facts, list[str]()
    if facts.working:
        out.append(f"Said last: {line(facts.working, QUOTE)}")
    if story.calls:
        out.append(f"Called last: {'; '.join(story.calls)}")
    return out


def go_on(story: Story) -> list[str]:
    if story.said and not unanswered(story):
        return ["What was asked last is answered: see what the user wants next"]
    return [f"Go on with “{line(said, 120)}”" for said in story.said[-1:]]


def excerpt(text: str, room: int) -> str:
    """Of an earlier summary by someone else, as much as there is room for."""
    head = "From an earlier summary:"
    if not text or room < 2 * LEAST:
        return ""
    begins = _REQUEST.search(text)
    lines = text[begins.start() if begins else 0 :].splitlines()
    flat = "\n".join(f"> {one.strip()}" for one in lines if one.strip())
    return f"{head}\n{_cut(flat, room - byte_length(head) - 1)}"


def came_up(words: Iterable[str], told: str, room: int) -> str:
    """Names that are not told yet, on one line."""
    kept, known = list[str](), names_in(told)
    room -= len(CAME_UP) + 2
    for word in words:
        if word not in known:
            room -= len(word) + 2
            if room < 0:
                break
            kept.append(word)
    return f"- {CAME_UP}{', '.join(kept)}" if kept else ""


# --- what was told before -------------------------------------------------------------------------------


def about(text: str) -> str:
    """What a line is about: another line about the same takes its place."""
    found = _CALL.match(text) or _FILE.match(text) or _QUOTED.match(text)
    return found["about"] if found else text


def merged(old: Iterable[str], new: Sequence[str]) -> list[str]:
    """Lines of an earlier telling that are about something else, and then the new ones."""
    earlier = {about(text): text for text in old}
    out: dict[str, str] = {}
    for text in new:
        key = about(text)
        if (before := earlier.pop(key, None)) is not None:
            text = _both(before, text)
        out.pop(key, None)
        out[key] = text
    return [*earlier.values(), *out.values()]


def _both(old: str, new: str) -> str:
    """What is seen again may be only the newest part: of a file all is kept that was ever done to it,
    and of a command what it printed.
    """
    one, two = _FILE.fullmatch(old), _FILE.fullmatch(new)
    if not one or not two:
        return old if old.startswith(f"{new}: ") else new
    changes, reads = (
        max(int(one[kind] or 0), int(two[kind] or 0)) for kind in ("changes", "reads")
    )
    known = [name for found in (two, one) for name in (found["names"] or "").split(", ") if name]
    return _file(File(two["about"], reads, changes), list(dict.fromkeys(known))[:20])


def told_in(text: str) -> dict[str, list[str]]:
    """The lines of an earlier telling, by kind. None for a text that was not told by us."""
    out: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for one in text.splitlines():
        if one.startswith("- ") and (kind := _kind(one[2:])):
            out[kind].append(one[2:])
    return out if out["files"] or CAME_UP in text else {kind: [] for kind in KINDS}


def names_told(lines: Iterable[str]) -> list[str]:
    """The names that came up in an earlier telling."""
    told = (text.removeprefix("- ") for text in lines)
    return [
        name
        for text in told
        if text.startswith(CAME_UP)
        for name in text.removeprefix(CAME_UP).split(", ")
    ]


def _kind(text: str) -> str:
    if found := _CALL.match(text):
        rest = text[found.end() :]
        return (
            "errors" if rest.startswith(GAVE) else "stored" if rest.startswith(MORE) else "commands"
        )
    if _FILE.fullmatch(text):
        return "files"
    found = _QUOTED.match(text)
    return {"To": "answers", "The user:": "errors"}[found["kind"]] if found else ""


# --- within a room --------------------------------------------------------------------------------------


def listed(lines: Sequence[str], room: int) -> str:
    """As a list within so many bytes; the oldest go first, and that is said."""
    out = [f"- {text}" for text in lines]
    if room_of(out) <= room:
        return "\n".join(out)
    room -= byte_length(LEFT_OUT) + 1
    at = len(out)
    while at and (room := room - byte_length(out[at - 1]) - 1) >= 0:
        at -= 1
    if at < len(out):
        return "\n".join([LEFT_OUT, *out[at:]])
    return f"- {line(lines[-1], room)}" if room >= LEAST else ""


def listed_files(lines: Sequence[str], room: int) -> str:
    """As a list in which names go before files do."""
    for most in FEWER:
        fewer = [_with_names(text, most) for text in lines]
        if room_of(f"- {text}" for text in fewer) <= room:
            break
    return listed(fewer, room)


def _with_names(text: str, most: int) -> str:
    head, _, names = text.partition("): ")
    return text if not names else f"{head}): {', '.join(names.split(', ')[:most])}"


def quoted(
    said: Sequence[str], room: int, before: str = "- ", after: str = "", most: int = 1 << 20
) -> str:
    """All that was said, each on its line: long ones are cut alike. Of too many the oldest one and the
    newest stay.
    """
    flat = [_flat(text) for text in said]
    around = byte_length(before + after) + 1
    note = SOME_LEFT_OUT
    fits = max(0, room - byte_length(note) - 8) // (LEAST + around + CUT)
    gone = 0
    if len(flat) > fits and room_of(f"{before}{text}{after}" for text in flat) > room:
        gone = len(flat) - fits
        flat = [*flat[: min(1, fits)], *flat[len(flat) - max(0, fits - 1) :]] if fits else []
        room -= byte_length(note) + 8
    most = min(most, level([byte_length(text) + around for text in flat], room) - around)
    out = [f"{before}{_flat(_cut(text, most))}{after}" for text in flat]
    if gone:
        out.insert(min(1, fits), note.format(gone))
    return "\n".join(out)


def _cut(text: str, most: int) -> str:
    return text if byte_length(text) <= most else clipped(text, max(0, most - CUT))


def _flat(text: str) -> str:
    return " ".join(text.split())


def shared(parts: Sequence[tuple[float, Render]], room: int, most: int) -> list[str]:
    """Each part within its share of the room, by weight; what one does not need the others get.

    A part without weight takes what it needs.
    """
    texts = [render(most) for _, render in parts]
    needs = [byte_length(text) for text in texts]
    open_ = [n for n, (weight, _) in enumerate(parts) if weight]
    left = room - sum(need for n, need in enumerate(needs) if n not in open_)
    while open_:
        unit = max(0, left) / sum(parts[n][0] for n in open_)
        content = [n for n in open_ if needs[n] <= parts[n][0] * unit]
        if not content:
            break
        left -= sum(needs[n] for n in content)
        open_ = [n for n in open_ if n not in content]
    for n in open_:
        texts[n] = parts[n][1](min(most, int(parts[n][0] * unit)))
    return texts
