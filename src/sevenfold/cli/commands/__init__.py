"""The bodies of the commands; each is imported when it runs."""
