"""Modules that several layers use: boundaries, restoring, facts, fidelity, background work."""
