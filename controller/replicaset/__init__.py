"""The controller of replica sets.

All decisions are made by pure functions. `rules` connects these functions to the caches.
"""
