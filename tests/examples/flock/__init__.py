"""A made-up kind, added as docs/adding-a-kind.md says: a flock has one VMI for each number below `replicas`."""
