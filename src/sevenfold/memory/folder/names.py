"""Rules for the names of memories and files: no name can mean a place outside the folder.

A *name* is what people say ("CI/CD 部署"); a *file* is the path below the memory folder that holds it
("ci-cd-部署.md"). Both are refused if they look like a way out on any system, since the folder may be
shared. Memories are found by name, by file, or by the beginning of either.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from sevenfold.core.errors import Refused
from sevenfold.memory.errors import Ambiguous, NoSuchMemory

ENDING: Final = ".md"
INDEX_NAME: Final = "MEMORY.md"
LOGS: Final = "logs"
COPY: Final = re.compile(r"\.conflict-[0-9a-f]{8,64}\.md$")
"""The ending of a copy that a clash within a team left."""
TEAM: Final = "team/"  # The folder of the memories that a team shares
LONGEST_NAME: Final = 200  # Characters of a memory's name
LONGEST_PART: Final = 200
"""Bytes of one folder's or file's name: what systems allow, less room for a temporary ending."""
LONGEST_FILE: Final = 600  # Bytes of the whole path below the memory folder
DEEPEST: Final = 8  # Folders below the memory folder, one in another
_SLUG: Final = 80
_SLUG_BYTES: Final = 150
_SHOWN: Final = 60

_PLAIN: Final = r"[a-z0-9][a-z0-9_-]{0,99}\.md"
_RESERVED: Final = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$", "clock$"]
    + [f"{port}{n}" for port in ("com", "lpt") for n in "0123456789¹²³"]
)
_SLASHES: Final = frozenset("⁄∕⧸╱⟋╲⧵∖⟍﹨＼／")
_UNSEEN: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_SELECTORS: Final = "[\ufe00-\ufe0f\U000e0100-\U000e01ef\u180b-\u180d]"
_ENCODED: Final = r"(?i)%(?:25)*(?:2e|2f|5c|3a|00|c0|c1|e0%80|u[0-9a-f]{4})"
_WAY_OUT: Final = r"(?:^|[/\\])\s*\.\.?\s*(?:[/\\]|$)|^[A-Za-z]:[/\\]|^[/\\~]|\\|\.md:"
_HIDDEN_KINDS: Final = frozenset(["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"])


def check_file_path(text: str, *, index: bool = False) -> str:
    """A path below the memory folder, as it is; `Refused` with the reason when it may not be one."""
    if why := explain_bad_file(text, index):
        raise Refused(
            f"{format_name(text)} is refused as a memory file: {why}; use a plain name "
            f"that ends in {ENDING}"
        )
    return text


@lru_cache(maxsize=1 << 15)
def explain_bad_file(text: str, index: bool = False) -> str:
    """The reason this cannot be the path of a memory file; empty if it can."""
    if re.fullmatch(_PLAIN, text) and text[:-3] not in _RESERVED and text != INDEX_NAME.lower():
        return ""
    if why := _wrong_characters(text) or _wrong_path(text):
        return why
    parts = text.split("/")
    for part in parts:
        if why := explain_bad_part(part):
            return why
    last = parts[-1]
    if not last.endswith(ENDING) or last == ENDING:
        return f"it does not end in {ENDING}"
    if last.casefold() == INDEX_NAME.casefold() and not (index and last == INDEX_NAME):
        return f"{INDEX_NAME} is the index and no memory"
    return ""


def _wrong_path(text: str) -> str:
    if not text or text.startswith(("/", "~")):
        return "it is empty, absolute or begins with '~'"
    if "\\" in text or ":" in text:
        return "it contains a backslash or a colon"
    if re.search(_ENCODED, text):
        return "it contains percent-encoded dots or slashes"
    if text.count("/") > DEEPEST or len(text.encode("utf-8")) > LONGEST_FILE:
        return "it is too long or too deep"
    return ""


def _wrong_characters(text: str) -> str:
    for character in text:
        if unicodedata.category(character) in _HIDDEN_KINDS or character in _UNSEEN:
            return f"it contains the hidden character U+{ord(character):04X}"
        if character in _SLASHES:
            return f"it contains U+{ord(character):04X}, which looks like a slash"
    if re.search(_SELECTORS, text):
        return "it contains a hidden variation selector"
    return ""


def explain_bad_part(part: str) -> str:
    """The reason this cannot be the name of a folder or file of memories; empty if it can."""
    if part in ("", ".", ".."):
        return "it contains '.', '..' or an empty part"
    if part.startswith((".", "~")):
        return "names that begin with a dot or with '~' are not memories"
    if part[-1] in ". " or part[0] == " ":
        return "a part begins or ends with a space, or ends with a dot"
    if part.split(".", 1)[0].rstrip(" ").casefold() in _RESERVED:
        return "it is a device name on Windows"
    if len(part.encode("utf-8", "surrogatepass")) > LONGEST_PART:
        return "a part of it is too long"
    folded = unicodedata.normalize("NFKC", part)
    if folded.count(".") != part.count(".") or any(c in folded for c in "/\\\0"):
        return "it contains a character that means a dot or a slash in another spelling"
    return ""


def check_memory_name(text: str) -> str:
    """The name of a memory as it is kept: trimmed and composed (NFC); `Refused` with the reason."""
    if why := explain_bad_name(text):
        raise Refused(f"{format_name(text)} is refused as the name of a memory: {why}; use plain words")
    return unicodedata.normalize("NFC", text).strip()


def explain_bad_name(text: str) -> str:
    """The reason this cannot be the name of a memory; empty if it can."""
    name = re.sub(_SELECTORS, "", unicodedata.normalize("NFC", text).strip())
    plain = unicodedata.normalize("NFKC", name)
    if not name or len(name) > LONGEST_NAME:
        return f"a name has 1 to {LONGEST_NAME} characters"
    if re.search(_WAY_OUT, plain) or re.search(_ENCODED, plain):
        return "it looks like a path that leads elsewhere"
    return _wrong_characters(name)


def make_slug(name: str) -> str:
    """The letters and digits of a name, of any script, lower case, the rest as single hyphens."""
    letters = []
    for character in unicodedata.normalize("NFKC", name).lower():
        kind = unicodedata.category(character)
        kept = (kind[0] in "LN" or kind in ("Mn", "Mc")) and character not in _UNSEEN
        letters.append(character if kept and not re.match(_SELECTORS, character) else "-")
    words = re.sub(r"-+", "-", "".join(letters)).strip("-")
    cut = unicodedata.normalize("NFC", words)[:_SLUG]
    return cut.encode("utf-8")[:_SLUG_BYTES].decode("utf-8", "ignore").strip("-")


def choose_file(name: str, taken: Container[str], folder: str = "") -> str:
    """A file for a new memory of this name: never one that is taken (`taken` holds `make_file_key`s).

    `folder` is where it is to be, empty or with a slash at its end.
    """
    stem = make_slug(name)
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    tries = [stem, *(f"{stem or 'memory'}-{digest[:size]}" for size in (4, 8, 16, 64))]
    for each in tries:
        file = f"{folder}{each}{ENDING}"
        if not explain_bad_file(file) and make_file_key(file) not in taken:
            return file
    raise Refused(f"no file is left for a memory named {format_name(name)}; use another name")


def make_file_key(file: str) -> str:
    """Two files with the same key are one file on some system: case and composition do not count."""
    if file.isascii():
        return file.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", file).casefold())


def format_name(text: str) -> str:
    """A name as it may be shown in a message: short, and hidden characters written out."""
    quoted = repr(text[:_SHOWN])
    return quoted if len(text) <= _SHOWN else f"{quoted[:-1]}…{quoted[-1]}"


def is_copy(file: str) -> bool:
    """True for a copy that a clash within a team left beside the memory."""
    return bool(COPY.search(file))


_SHORT_NAME: Final = 40  # Characters of a name that is too short to tell the agent something
_TOGETHER: Final = 200


def find_suspicious_names(files: Sequence[str], is_suspicious: Callable[[str], bool]) -> Iterator[str]:
    """The files whose names are to be looked at one by one; the others are harmless, by many at once."""
    short = [file for file in files if len(file) <= _SHORT_NAME]
    yield from (file for file in files if len(file) > _SHORT_NAME)
    for at in range(0, len(short), _TOGETHER):
        some = short[at : at + _TOGETHER]
        if is_suspicious("\n\n".join(some)):
            yield from some


_CLOSE: Final = 3


def find_meant_file(asked: str, names: Mapping[str, str]) -> str:
    """The file that is meant; `names` has the name of the memory in each file.

    What fits exactly goes before what fits loosely. `NoSuchMemory` names what comes close.
    """
    wanted = make_file_key(asked.strip())
    if asked in names:
        return asked
    loosely = wanted if not explain_bad_name(asked) else "/"  # which nothing begins with
    ways = (
        lambda file, name: name == asked.strip(),
        lambda file, name: (
            make_file_key(name) == wanted or make_file_key(file) in (wanted, wanted + ENDING)
        ),
        lambda file, name: make_slug(name) == make_slug(loosely) != "",
        lambda file, name: (
            make_file_key(name).startswith(loosely) or make_file_key(file).startswith(loosely)
        ),
    )
    for fits in ways:
        found = _first_choice(file for file, name in names.items() if fits(file, name))
        if len(found) == 1:
            return found[0]
        if found:
            raise Ambiguous(asked, found)
    raise NoSuchMemory(asked, find_similar_names(asked, names))


def find_named_file(name: str, names: Mapping[str, str]) -> str | None:
    """The file of the memory with exactly this name; None when there is none."""
    found = _first_choice(file for file, each in names.items() if each == name)
    if len(found) > 1:
        raise Ambiguous(name, found)
    return found[0] if found else None


def _first_choice(files: Iterable[str]) -> list[str]:
    """Those that are meant: a memory goes before the copies that a clash has left of it."""
    found = sorted(files)
    return [file for file in found if not is_copy(file)] or found


def find_similar_names(asked: str, names: Mapping[str, str]) -> list[str]:
    """The names that look most like what was asked for."""
    by_key = {make_file_key(name): name for name in names.values()}
    return [by_key[each] for each in difflib.get_close_matches(make_file_key(asked), by_key, _CLOSE)]
