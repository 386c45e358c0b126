"""The code that carries out the rules of every kind: plans, executor, expectations, reconciler and workers."""
