"""The code that carries out the rules of every kind: plans, executor, expectations, reconciler and workers.

In this package, an owner is a replica set or pool, and its children are its VMs, VMIs and revisions.
"""
