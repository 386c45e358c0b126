"""The pictures of the README, from a run of the demo: `make pictures`."""
