"""Consolidation without a model: what a dream can tidy up in a memory folder by rule, and be sure of.

    consolidation    the steps in their order, and the report
    dates            relative dates become calendar dates
    duplicates       memories that say the same become one
    housekeeping     the index within its limits; projects that are over; daily logs become memories
    sentences        the sentences of a memory and their places; how two of them compare
    staged_memories  the files of the folder while they are worked on; links follow what moved
    supersession     of two sentences that give one thing two values the newer counts

Whatever is not sure is left as it is and named as unclear. Nothing is removed that is not said elsewhere
or replaced by something newer.
"""
