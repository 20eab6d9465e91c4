"""Dates in prose, found and made absolute, in English and in Chinese."""
