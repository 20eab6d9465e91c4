"""What deterministic dreams keep, merge and resolve, on synthetic and real memory folders."""
