"""Leader election: of several processes, only one reconciles, and the other processes wait to replace it."""
