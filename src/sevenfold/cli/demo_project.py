"""The small project that the demo works on: a till with a wrong tax rate, and the test that says so."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FILES: Final = {
    "README.md": """\
# Till

Adds up what a customer buys. The tax rate in this town is 8 %; `config.toml` says where the till listens.
""",
    "config.toml": """\
[server]
host = "127.0.0.1"
port = 8471          # the old till used 8080
log = "till.log"
""",
    "till.py": '''\
"""Adds up what a customer buys."""

TAX_RATE = 0.07


def total(prices: list[float]) -> float:
    """The sum with tax, rounded to cents."""
    return round(sum(prices) * (1 + TAX_RATE), 2)
''',
    "journal.py": '''\
"""Prints what was sold this year, a line a sale."""

for n in range(1, 2_001):
    print(f"sale {n:>5}: {n % 17 + 1} pieces, {(n * 37 % 9_000) / 100:>6.2f} before tax")
''',
    "test_till.py": """\
import unittest

from till import total


class TotalTest(unittest.TestCase):
    def test_tax_is_eight_percent(self) -> None:
        self.assertEqual(total([10.0, 2.5]), 13.5)

    def test_nothing_costs_nothing(self) -> None:
        self.assertEqual(total([]), 0.0)
""",
}


SALES: Final = "".join(
    f"sale {n:>4}: {n % 17 + 1:>2} pieces, {n * 37 % 9_000 / 100:>6.2f} before tax, till {n % 3 + 1}\n"
    for n in range(1, 901)
)
"""Long enough that notes are begun, short enough to stay in the window."""


def lay_out(folder: Path) -> None:
    """Write the project into an empty folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {**FILES, "sales.txt": SALES}.items():
        (folder / name).write_text(text, encoding="utf-8")
