"""What runs the rules of both kinds: plans, executor, expectations, reconciler, workers."""
