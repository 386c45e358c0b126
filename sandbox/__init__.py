"""A local cluster for trials and tests: a real control plane on loopback, and a simulator of KubeVirt's VMs.

The controller imports nothing of this package, and the image does not contain it.
"""
