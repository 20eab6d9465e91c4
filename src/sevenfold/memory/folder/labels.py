"""A name and a type for a text that becomes a memory, by a few signs in its words."""

from __future__ import annotations

import re
from typing import Final

from sevenfold.memory.folder.names import make_slug
from sevenfold.memory.topic_file import Type

MOST_WORDS: Final = 6  # Words of a memory that make its name
MOST_CHARACTERS: Final = 24  # The same for a text without spaces
NAMELESS: Final = "remembered"

_WORD: Final = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_CJK: Final = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_SMALL: Final = frozenset(
    _WORD.findall(
        "a am an and are as at be been by can for from has have i i'm if in is it it's its me my of on or "
        "our that the their them there they this those to us was we we're were will with you your"
    )
)
_URL: Final = re.compile(r"\bhttps?://([^\s/]*)\S*|\bwww\.\w\S*", re.I)
_CODE: Final = re.compile(r"(?=\D*\d)\S{16,}")
"""A long word with digits: whatever it is, it is no name, and it may be a secret."""
_PERSON: Final = re.compile(
    r"(?:i am|i['’]m|i work|i live|i lead|i teach|i studied|i know|i speak|i have been|my name|my role"
    r"|my job|call me)\b|我是|我叫|我的(?:名字|工作|职业|角色)|我在.{1,20}(?:工作|上班|任职)|我负责",
    re.I,
)
_ORDER: Final = re.compile(
    r"(?:to|always|never|don['’]?t|do not|please|only|use|run|write|keep|ask|put|add|format|commit|test"
    r"|check|answer|reply|explain|avoid|prefer|make sure)\b|总是|始终|永远|从不|不要|别|必须|请|用|先",
    re.I,
)
_RULE: Final = re.compile(
    r"\b(?:always|never|must|should|shouldn['’]t|mustn['’]t|don['’]t|do not|instead of|rather than"
    r"|prefer|like|want|hate|from now on)\b"
    r"|总是|始终|永远|从不|不要|必须|应该|应当|禁止|尽量|优先|喜欢|以后",
    re.I,
)


def classify_memory(text: str) -> Type:
    """The type of a memory: about the person, a rule for the work, a place outside, or the project."""
    if _ORDER.match(text):
        return "feedback"
    if _URL.search(text):
        return "reference"
    if _PERSON.match(text):
        return "user"
    return "feedback" if _RULE.search(text) else "project"


def make_memory_name(text: str) -> str:
    """A short name that says what it is about, and that can be a file's."""
    line = text.split("\n", 1)[0]
    said = _URL.sub("", line)
    if not make_slug(said):
        said = _URL.sub(r"\1", line)
    if len(_CJK.findall(said)) * 2 > len(_WORD.findall(said)):
        return make_slug(said[:MOST_CHARACTERS]) or NAMELESS
    words = [
        word.replace("'", "").replace("’", "")
        for word in _WORD.findall(said)
        if word.lower().replace("’", "'") not in _SMALL and not _CODE.fullmatch(word)
    ]
    return make_slug("-".join(words[:MOST_WORDS])) or NAMELESS
