"""How much the core itself costs: import, start, time per step, memory, and the fixed prefix."""
