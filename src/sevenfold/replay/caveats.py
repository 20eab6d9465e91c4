"""What a replay does not charge, in words: every place that shows its figures says the same."""

from __future__ import annotations

from typing import Final

NOT_CHARGED: Final = (
    "layers 1 to 4, and one request for extraction after each turn of a policy that has it; recall, dreams "
    "and agents' status are not charged"
)
"""What no figure has in it."""
AT_LEAST: Final = (
    "Extraction is charged as when it finds nothing: one request on the cached prefix and 150 tokens of "
    "output at each rest, which is the least it costs."
)
"""How what is charged is charged."""
BY_RULE: Final = (
    "Fidelity and regret measure the writer by rule that stands in for a model. Of 30 summaries that "
    "were recorded, written by a model, the same measure finds 61.5 % on average, and 82.6 % with the "
    "user's words put in verbatim."
)
"""What fidelity is the fidelity of."""
