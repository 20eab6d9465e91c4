"""What a caller's client raised when the provider refused a request: was it too long, and by how much?"""

from __future__ import annotations

from typing import Any, Final

from sevenfold.errors import ModelFailure, PromptTooLong
from sevenfold.models.failures import Provider, told, too_long
from sevenfold.transcript import View

UNKNOWN_GAP: Final = 0.2
"""The part that has to go when the provider says "too long" and not by how much."""
_SOMEBODY: Final = Provider("the provider", "", "", "")


def refusal(error: BaseException, model: str) -> PromptTooLong | None:
    """The refusal as ours, with its two numbers where they are found; None: it was about something else.

    The SDKs keep the status and the body of the answer with what they raise; of others only the text
    is known.
    """
    if isinstance(error, ModelFailure):
        return error if isinstance(error, PromptTooLong) else None
    body: Any = getattr(error, "body", None)
    status = getattr(error, "status_code", None)
    said = told(
        _SOMEBODY,
        body if isinstance(body, dict) and body else str(error),
        status=status if isinstance(status, int) else None,
        model=model,
    )
    return too_long(said)


def still_too_long(refused: PromptTooLong, sent: View, now: View) -> bool:
    """Whether the conversation is still about what was refused: the caller may have shortened it."""
    wanted = refused.over or int(sent.tokens * UNKNOWN_GAP)
    return sent.tokens - now.tokens < wanted
