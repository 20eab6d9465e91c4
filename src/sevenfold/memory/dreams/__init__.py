"""Dreams as transactions: a private copy to work on, and a commit that loses nothing and can be undone.

    commit      commit, preview, recover, undo: what others call
    journal     written before the first file changes; read after a crash
    lock        one dream at a time; its file's time is that of the last dream
    losses      which statements are gone, and whether that is accounted for
    merge       what the dream changed and what others wrote meanwhile become one
    plan        all of this together, on a draft: what is to be written; links and the index follow
                what moved; what is not accounted for is put back
    stage       the copy, and what it was made from
    statements  what a file says, one statement at a time

A file that a dream thinks is out of date moves to `archive/` in the memory folder: recall still finds it,
the index need not list it. A dream never changes `logs/`, `team/` or a file that it was not given.
"""
