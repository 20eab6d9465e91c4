"""Dreams as transactions: a private copy to work on, and a commit that loses nothing and can be undone.

    lock        one dream at a time; its file's time is that of the last dream
    staging     the copy, and what it was made from
    merging     what the dream changed and what others wrote meanwhile become one
    facts       what a file says, one statement at a time; `sentences` cuts, `shelf` finds them again
    losses      which statements are gone, and whether that is accounted for
    keeping     what is not accounted for is put back
    linking     links follow what moved; `pointing` does the same for the index
    planning    all of this together, on a `draft`: what is to be written
    journal     written before the first file changes; `recovering` reads it after a crash
    committing  commit, preview, recover: what others call; `undoing` takes the last dream back

A file that a dream thinks is out of date moves to `archive/` in the memory folder: recall still finds it,
the index need not list it. A dream never changes `logs/`, `team/` or a file that it was not given.
"""
