"""Consolidation without a model: tidies a memory folder by rule. `consolidation.py` has the steps in order.

A change that is not sure is not made, only reported as unclear. Nothing is removed that is not said
elsewhere or replaced by something newer.
"""
