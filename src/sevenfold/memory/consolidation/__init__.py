"""Consolidation without a model: what a dream can tidy up in a memory folder by rule, and be sure of.

    consolidate  Consolidation of a memory folder without a model: what the offline engine does in a
                 dream
    dates        relative dates become calendar dates; when something was said
    duplicates   memories that say the same become one; what of a removed memory's frontmatter comes
                 along
    sentences    what a memory says, and where each sentence stands; when two sentences are the
                 same, and when they only look alike; whether two memories are about one thing
    staged       the files of the folder while they are worked on, and how they are written back;
                 what was done, with the evidence; links and index lines that led to a memory that
                 moved
    superseded   of two such sentences the newer counts; sentences that give one thing two values;
                 words by which a sentence says that it is new
    tidy         the index: whole, short lines, within its limits; projects that are over; daily
                 logs become memories

Whatever is not sure is left as it is and named as unclear. Nothing is removed that is not said elsewhere
or replaced by something newer.
"""
