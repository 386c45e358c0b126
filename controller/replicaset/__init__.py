"""The controller of replica sets.

All decisions are made by pure functions. The reconciler calls these functions through the module `rules`.
"""
