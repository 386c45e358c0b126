"""The soak: an hour of a small load on a control plane, to find resources of the controller that grow with time."""
