"""Doubles for your own tests: a scripted model, tools, a clock you move, background work you run."""

from sevenfold.testing.doubles import FakeClock, FakeTools, NoAccounts, Postponed, ScriptedModel

__all__ = ["FakeClock", "FakeTools", "NoAccounts", "Postponed", "ScriptedModel"]
