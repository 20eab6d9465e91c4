"""What agents and teams may be called: a name is also the name of a file, and others read it.

Nobody may be called so that a message from it looks like one from the person, from the conversation that
leads or from the program: not in words ("the user"), and not in letters that only look the same (a
Cyrillic letter in the middle of it).
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

from sevenfold.errors import Refused
from sevenfold.layers.l7_agents.frames import LEAD, SESSION
from sevenfold.memory.folder.naming import key, shown, wrong_part, wrong_with_name

AGENT: Final = "an agent"
LONGEST: Final = 64
COMMAND_LINE: Final = "command-line"
"""Who a message from a terminal outside any session comes from."""
UNKNOWN: Final = "unknown"
"""Who a message comes from that claims to come from somebody it cannot come from."""
_WORDS: Final = frozenset({"user", "lead", "leader"})
"""Words that make a name look like somebody else's, wherever in it they stand."""
_ROLES: Final = frozenset({"main", "system", "the system", "assistant"})
_WHOLE: Final = frozenset(
    {
        "human",
        "the human",
        "person",
        "the person",
        "all",
        "you",
        "fork",
        UNKNOWN,
        "command line",
    }
)
"""Names that mean somebody else."""
_ALIKE: Final = str.maketrans(
    "авеікмнорстухѕјһԁԍԛԝӏ" + "αβεηικνορτυχωγ" + "ɑɡıɩϲϳ0",
    "abeikmhopctyxsjhdgqwl" + "abenikvoptuxwy" + "agiicjo",
)
"""Small Cyrillic, Greek and other letters, and the Latin ones that they look like."""
_STROKES: Final = str.maketrans("i1|", "lll")
_UNSEEN: Final = frozenset({"Mn", "Cf"})
_PARTS: Final = re.compile(r"[\W_]+")
_LETTERS: Final = re.compile(r"[\W\d_]+")
_HUMP: Final = re.compile(r"(?<=[a-z\d])(?=[A-Z])")


def checked_name(name: str, what: str = AGENT) -> str:
    """The name, composed (NFC); `Refused` with the reason when it cannot be one."""
    why = _wrong(name)
    if not why and what == AGENT and name != LEAD and poses(name):
        why = "others would take it for somebody else; choose another"
    if why:
        raise Refused(f"{shown(name)} cannot be the name of {what}: {why}")
    return unicodedata.normalize("NFC", name)


def same_name(one: str, other: str) -> bool:
    """Whether both would be one file on some system."""
    return key(one) == key(other)


def poses(name: str) -> bool:
    """Whether somebody who reads this name could take it for the person's, the lead's or the program's."""
    return any(_poses(look_alike(spelled)) for spelled in (name, _HUMP.sub(" ", name)))


def known_sender(sender: str) -> str:
    """Who a letter is shown to be from. What comes out of a file may claim anything."""
    given = sender in (LEAD, COMMAND_LINE) or sender.startswith(SESSION)
    return UNKNOWN if not given and poses(sender) else sender


def look_alike(text: str) -> str:
    """The text in small Latin letters as far as it looks like them, character by character.

    As long as the text itself: what is found in the one is at the same place in the other.
    """
    return text.lower() if text.isascii() else "".join(map(_letter, text))


@lru_cache(maxsize=4096)
def _letter(character: str) -> str:
    plain = unicodedata.normalize("NFKD", character)[:1].casefold()
    plain = plain if len(plain) == 1 else character
    return plain.translate(_ALIKE)


def _poses(text: str) -> bool:
    text = "".join(c for c in text if unicodedata.category(c) not in _UNSEEN)
    words = _PARTS.split(text)
    whole = " ".join(word for word in words if word)
    if whole in _WHOLE or _thin(whole) in _THIN_ROLES:
        return True
    # A digit may stand for a letter, or only be put behind a word.
    return any(_thin(word) in _THIN_WORDS for word in (*words, *_LETTERS.split(text)))


def _thin(text: str) -> str:
    """With one letter for those that are a mere stroke in many fonts."""
    return text.translate(_STROKES)


_THIN_WORDS: Final = frozenset(map(_thin, _WORDS))
_THIN_ROLES: Final = frozenset(map(_thin, _ROLES))


def _wrong(name: str) -> str:
    if not 0 < len(name) <= LONGEST:
        return f"a name has 1 to {LONGEST} characters"
    if why := wrong_with_name(name) or wrong_part(name):
        return why
    for character in name:
        if unicodedata.category(character)[0] not in "LMN" and character not in " _-.":
            return f"{character!r} is no letter, digit, blank, '-', '_' or '.'"
    return ""
