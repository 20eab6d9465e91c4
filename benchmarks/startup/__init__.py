"""What it takes to start: time, CPU time, modules and regular expressions up to the first request."""
