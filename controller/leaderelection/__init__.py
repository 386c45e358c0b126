"""Leader election: one process works, the others stand by."""
