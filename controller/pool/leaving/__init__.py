"""VMs that leave a pool, and what happens to their disks: release, deletion, and the reasons to keep a VM.

The choice of a VM for an update or for healing is in `rollout` and `healing`.
"""
