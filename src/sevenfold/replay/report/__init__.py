"""The report of a replay: one page that needs no network and no script, on a screen and on paper."""
