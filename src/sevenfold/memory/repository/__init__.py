"""The history of memory as a bare git repository: objects, trees, packs, purging, mending."""
