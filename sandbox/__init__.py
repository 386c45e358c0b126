"""A real control plane on loopback and simulated VMs, for trials and tests. The controller and the image lack it."""
