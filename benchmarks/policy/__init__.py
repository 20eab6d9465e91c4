"""What a policy for tool results saves on recorded sessions, and the numbers it is built on."""
