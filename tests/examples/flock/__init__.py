"""An example of a new kind, as in docs/adding-a-kind.md. A flock has one VMI for each number below `replicas`."""
