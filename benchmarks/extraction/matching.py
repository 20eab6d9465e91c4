"""Whether a saved memory and a memory of the data set say the same, by the words they share.

`strict` and `lenient` are two thresholds. By hand, 50 pairs were judged; the README says how often each
threshold was right.
"""

from __future__ import annotations

import re
from typing import Final

from sevenfold.offline.language import find_terms

LENIENT: Final = 0.4
STRICT: Final = 0.6
FEWEST: Final = 2
"""Words that two texts must share; one is enough when a text has no more."""
_EMPTY: Final = frozenset(
    find_terms("user users the user's wants want wanted current currently plan plans said has have is will")
)
_DATE: Final = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b")
_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_ORDINAL: Final = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)\b")


def words(text: str) -> frozenset[str]:
    """What a text is about. A date is the same however it is written."""
    text = _DATE.sub(lambda d: f"{d[1]} {_month(d[2])} {int(d[3])}", text)
    text = _ORDINAL.sub(r"\1", text)
    return frozenset(term for term in find_terms(text) if len(term) > 1 or term.isdigit()) - _EMPTY


def _month(number: str) -> str:
    return _MONTHS[int(number) - 1] if 1 <= int(number) <= 12 else number


def covered(gold: frozenset[str], saved: frozenset[str]) -> float:
    """How much of a gold memory stands in a saved one."""
    both = len(gold & saved)
    return both / len(gold) if both >= min(FEWEST, len(gold)) and gold else 0.0


def matched(saved: frozenset[str], gold: frozenset[str]) -> float:
    """How much a saved memory and a gold one say the same: one may say more than the other."""
    return max(covered(gold, saved), covered(saved, gold))
