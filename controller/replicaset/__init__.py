"""The controller of replica sets. All functions that make decisions are pure. `rules` connects them to the caches."""
