"""Updates of VMs to the current template: the step that each VM needs, and the limits of a rollout.

Rules about VMs that fail are in `healing`.
"""
