"""Recorded sessions driven through the layers again: what they would have cost, and what was missed."""
