"""Doubles for your own tests: a model that follows a script, tools, a clock you move, a tray you run."""

from sevenfold.testing.doubles import FakeClock, FakeTools, NoAccounts, Postponed, ScriptedModel
from sevenfold.testing.memory import InMemoryBackend

__all__ = ["FakeClock", "FakeTools", "InMemoryBackend", "NoAccounts", "Postponed", "ScriptedModel"]
