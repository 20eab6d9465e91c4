"""Commands of the user that run at fixed moments, and what they are told."""
