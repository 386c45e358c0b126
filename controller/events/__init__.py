"""Kubernetes Events: this package records, counts and sends them."""
