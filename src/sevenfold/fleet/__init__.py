"""Many machines with one memory: PostgreSQL holds it, each machine keeps a replica."""
