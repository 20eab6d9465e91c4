"""How far the token estimate is from what providers count, before and after calibration."""
