"""The memory folder: reached safely, listed, written under one lock, guarded, recorded."""
