"""Labelled examples of secrets, split by service: the rules were made on one part.

The texts are decoded in memory. Nothing here prints, keeps or returns a part of one.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from typing import Final

import msgspec

from benchmarks.guard.texts import DATA

FORMS: Final = ("assignment", "word value", "glued", "bare or prefixed", "identifier", "no secret")

_RUN: Final = re.compile(r"\S+")
_GLUED: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://\S+|;\s?\w[\w ]*=")
_ASSIGNED: Final = re.compile(
    r"[\w\]\"'*)]\s{0,20}(?:=>|:=|={1,3}|!=|:)\s{0,4}[\"'\\]{0,3}[^\s\"']{3,}|^\w+=[^=]"
)
_IDENTIFIERS: Final = re.compile(
    r"bucket|resource name|account id|client id|username(?! and)|domain|recipient|reporter id|"
    r"public (?:access|api)",
    re.IGNORECASE,
)
"""Kinds that the source calls secret and that open nothing: names of things, and public keys."""


class LabelledSecret(msgspec.Struct, frozen=True):
    """One example, its form, and True if the rules were made with it in view."""

    text: str
    form: str
    tuned: bool

    def __repr__(self) -> str:
        return f"LabelledSecret({self.form!r})"


def load_labelled_secrets() -> list[LabelledSecret]:
    """Every example; none where the data is not beside the checkout."""
    path = DATA / "secrets/noseyparker_dev.jsonl.gz"
    if not path.exists():
        return []
    out = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            text = base64.b64decode(row["text_base64"]).decode("utf-8", "replace")
            form = "no secret"
            if row["secret"]:
                form = "identifier" if _IDENTIFIERS.search(row["rule"]) else name_form(text)
            out.append(LabelledSecret(text, form, is_tuned(row["service"])))
    return out


def is_tuned(service: str) -> bool:
    """Three services of four, by a hash of their names; the fourth was run and never read."""
    return hashlib.sha256(service.encode()).digest()[0] % 4 != 3


def name_form(text: str) -> str:
    """The way the secret stands in its text, told from the text alone."""
    text = text.strip()
    assigned = re.match(r"\w+=[^=]", text)
    if _RUN.fullmatch(text) and "://" not in text and not assigned:
        return "bare or prefixed"
    if _GLUED.search(text):
        return "glued"
    return "assignment" if _ASSIGNED.search(text) else "word value"
