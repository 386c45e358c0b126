"""The replacement of VMs that fail: which VMs, when, and the records of earlier healings.

Rules about outdated VMs are in `rollout`.
"""
