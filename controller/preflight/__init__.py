"""Checks before the start: permissions, a second writer, and what KubeVirt is installed."""
