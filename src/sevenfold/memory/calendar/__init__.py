"""Relative dates as calendar dates, in English and Chinese."""
