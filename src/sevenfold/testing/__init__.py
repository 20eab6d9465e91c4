"""Doubles for your own tests: a scripted model, tools, a clock you move, background work you run."""

from sevenfold.testing.doubles import FakeClock, FakeTools, NoAccounts, Postponed, ScriptedModel
from sevenfold.testing.memory import InMemoryBackend

__all__ = ["FakeClock", "FakeTools", "InMemoryBackend", "NoAccounts", "Postponed", "ScriptedModel"]
