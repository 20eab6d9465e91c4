"""How likely a result will be needed again: a logistic model whose few coefficients are data.

The coefficients in `need.toml` are fitted on recorded sessions by `python -m benchmarks.policy.fit`, which
can be run on your own; the setting `micro.needModel` names the file it writes.
"""

from __future__ import annotations

import math
import operator
import tomllib
from pathlib import Path
from typing import Final

from sevenfold.errors import SettingsError
from sevenfold.layers.l2_microcompaction.candidates import READERS, WRITERS, Candidate, Scan

COEFFICIENTS: Final = Path(__file__).with_name("need.toml")
FEATURES: Final = (
    "always",
    "read",
    "search",
    "shell",
    "change",
    "size",
    "age",
    "turns",
    "changed_since",
    "read_since",
    "untouched",
    "error",
)
CHANGING: Final = ("age", "turns", "changed_since", "read_since", "untouched")
"""Those that change while a result stands in the view."""
SEARCHERS: Final = frozenset({"Grep", "Glob"})


def features(candidate: Candidate, scan: Scan) -> tuple[float, ...]:
    """What is known about a result, each on a scale of about one, in the order of `FEATURES`."""
    tool, touched = candidate.use.name, scan.files.get(candidate.path)
    read = tool in READERS
    changed_since = touched is not None and touched.changed > candidate.call
    read_since = touched is not None and read and touched.read > candidate.call
    last = touched.request if touched else candidate.request
    return (
        1.0,
        float(read),
        float(tool in SEARCHERS),
        float(tool == "Bash"),
        float(tool in WRITERS),
        math.log2(1 + candidate.tokens / 100),
        math.log2(1 + scan.calls - candidate.call),
        math.log2(1 + scan.turns - candidate.turn),
        float(read and changed_since),
        float(read_since),
        math.log2(1 + scan.requests - last) if read else 0.0,
        float(candidate.error),
    )


class NeedModel:
    """The chance that a result is needed again after it was cleared."""

    def __init__(self, coefficients: tuple[float, ...]) -> None:
        self._coefficients = coefficients
        named = dict(zip(FEATURES, coefficients, strict=True))
        self._changing_coefficients = tuple(named[name] for name in CHANGING)
        self._lasting: dict[str, float] = {}

    @classmethod
    def load(cls, path: Path | None = None) -> NeedModel:
        where = path or COEFFICIENTS
        try:
            raw = tomllib.loads(where.read_text(encoding="utf-8"))["coefficients"]
            return cls(tuple(_number(raw[name]) for name in FEATURES))
        except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
            raise SettingsError(
                f"{where}: the coefficients of micro.needModel cannot be read ({error}); "
                "write the file anew with 'python -m benchmarks.policy.fit'"
            ) from error

    def chance(self, candidate: Candidate, scan: Scan) -> float:
        """The same as `probability` of all `features`; what never changes of them is summed up once."""
        lasting = self._lasting.get(candidate.use.id)
        if lasting is None:
            values = features(candidate, scan)
            lasting = sum(c * v for c, v in zip(self._coefficients, values, strict=True))
            lasting -= self._changing(candidate, scan)
            self._lasting[candidate.use.id] = lasting
        return _logistic(lasting + self._changing(candidate, scan))

    def _changing(self, candidate: Candidate, scan: Scan) -> float:
        (age, turns, changed_since, read_since, untouched) = self._changing_coefficients
        weighted = age * math.log2(1 + scan.calls - candidate.call)
        weighted += turns * math.log2(1 + scan.turns - candidate.turn)
        if candidate.use.name not in READERS:
            return weighted
        touched, last = scan.files.get(candidate.path), candidate.request
        if touched is not None:
            weighted += changed_since * (touched.changed > candidate.call)
            weighted += read_since * (touched.read > candidate.call)
            last = touched.request
        return weighted + untouched * math.log2(1 + scan.requests - last)


def probability(coefficients: tuple[float, ...], values: tuple[float, ...]) -> float:
    """The logistic function of the weighted sum."""
    return _logistic(sum(map(operator.mul, coefficients, values)))


def _logistic(weighted: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, weighted))))


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return float(value)
