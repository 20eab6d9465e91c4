"""A proxy on loopback between an agent and its provider: the layers for every client, with a receipt."""
