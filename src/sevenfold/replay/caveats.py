"""What a replay charges and what it does not, in words that every place shows alike."""

from __future__ import annotations

from typing import Final

from sevenfold.replay.extracting import NOTHING, SOMETHING

NOT_CHARGED: Final = "what recall attaches, dreams, the status of agents"
"""What no figure has in it."""
CHARGED: Final = "layers 1 to 4, and extraction where a policy has it and a person talked"
LOOKS: Final = (
    "extraction looks when its own rules say, mostly in a silence: one request on the prefix with "
    f"{NOTHING} tokens of answer, and one more with {SOMETHING} where something lasting was said"
)
"""How that is charged which no recording shows."""
GUESSED: Final = "How often a model would find something worth remembering is not known."
BY_RULE: Final = (
    "Fidelity and regret measure the writer by rule that stands in for a model. Of 30 summaries that "
    "were recorded, written by a model, the same measure finds 61.5 % on average, and 82.6 % with the "
    "user's words put in verbatim."
)
"""What fidelity is the fidelity of."""
