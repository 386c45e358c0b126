"""The imitation of virt-api: the subresources of VMs, and the webhooks. Only `server` and `registration` do I/O.

The state of VMs and VMIs is not here, but in the modules of `sandbox`.
"""
