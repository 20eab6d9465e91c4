"""What more than one layer needs: boundaries, restoring, facts, fidelity, background work."""
