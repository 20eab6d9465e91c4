"""Consolidation without a model: what a dream can tidy up in a memory folder by rule, and be sure of.

    staged        the files of the folder while they are worked on, and how they are written back
    statements    what a memory says, and where each sentence stands
    wording       when two sentences are the same, and when they only look alike
    subjects      whether two memories are about one thing
    timing        when something was said
    dating        relative dates become calendar dates
    duplicates    memories that say the same become one
    joining       what of a removed memory's frontmatter comes along
    linking       links and index lines that led to a memory that moved
    marks         words by which a sentence says that it is new
    frames        sentences that give one thing two values
    superseding   of two such sentences the newer counts
    archiving     projects that are over
    indexing      the index: whole, short lines, within its limits
    distilling    daily logs become memories
    reports       what was done, with the evidence

Whatever is not sure is left as it is and named as unclear. Nothing is removed that is not said elsewhere
or replaced by something newer.
"""
