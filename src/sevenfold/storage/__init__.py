"""Everything that touches the disk: whole files, append-only logs, and where they lie."""
