"""Dreams as transactions: `stage` makes a private copy, `commit` takes it over; nothing is lost.

A file that a dream thinks is out of date moves to `archive/` in the memory folder: recall still finds it,
the index need not list it. A dream never changes `logs/`, `team/` or a file that it was not given.
"""
