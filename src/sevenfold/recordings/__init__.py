"""Sessions that were recorded, by Sevenfold and by others, read into one form."""
