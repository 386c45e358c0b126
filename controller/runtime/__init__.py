"""The machinery that runs the rules of every kind: plans, executor, expectations, reconciler and workers."""
