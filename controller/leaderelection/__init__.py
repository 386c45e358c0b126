"""Leader election: one process works; the other processes stand by."""
