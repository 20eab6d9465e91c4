"""Whether a person talked in a recorded session: where nobody did, nothing is looked for to remember."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from sevenfold.replay.policies import Policy
from sevenfold.replay.reading.own import OwnRecorded
from sevenfold.storage.recorded import Recorded

UNKNOWN: Final = (
    "the file does not say whether a person talked: extraction is charged as if one did"
)


def talked(recorded: Recorded) -> bool | None:
    """None where a file of ours does not say; of other tools' sessions only the agents' are told apart."""
    if recorded.agent:
        return False
    return recorded.interactive if isinstance(recorded, OwnRecorded) else True


def learns(policy: Policy, person: bool | None) -> Policy:
    """The policy as it would have been in a session with a person in it, or without."""
    if person is not False or policy.extraction.non_interactive:
        return policy
    return replace(policy, flags=replace(policy.flags, extraction=False))


def unknown(recorded: Recorded, policies: tuple[Policy, ...]) -> bool:
    """Whether something is charged that perhaps was not done."""
    either = any(p.flags.extraction and not p.extraction.non_interactive for p in policies)
    return talked(recorded) is None and either
