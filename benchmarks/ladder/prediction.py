"""Replays the file of a session under the policy that it ran with: the actions that replay predicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sevenfold.cache.prices import Prices
from sevenfold.recordings.finder import ReplayFile, read_recording
from sevenfold.recordings.recorded_session import convert_recording
from sevenfold.replay.bookkeeping import COMPACTION, MICRO, NOTES
from sevenfold.replay.outcome import ReplayOutcome
from sevenfold.replay.policies import load_policy
from sevenfold.replay.runner import RecordedDrive
from sevenfold.settings.layers import PolicyName

LAYERS = {MICRO: "2", NOTES: "3 pays", COMPACTION: "4"}


@dataclass(frozen=True)
class PredictedAction:
    """An action of a layer in a replay."""

    request: int  # Requests of the conversation before it
    layer: str


def predict_actions(path: Path, policy: PolicyName) -> list[PredictedAction]:
    """The actions of layers 2, 3 and 4 in a replay of this file."""
    recorded = read_recording(ReplayFile(str(path)))
    assert recorded is not None, f"{path} is no session"
    drive = RecordedDrive(recorded, convert_recording(recorded).entries, Prices.load())
    return list(_list_actions(drive.replay(load_policy(policy))))


def _list_actions(outcome: ReplayOutcome) -> Iterator[PredictedAction]:
    requests = 0
    for row in outcome.rows:
        for action in row.happened:
            if action.tokens > 0 and (layer := LAYERS.get(action.layer)):
                yield PredictedAction(requests, layer)
        requests += row.kind == "turn"
