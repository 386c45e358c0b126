"""The takeover from KubeVirt's own controller: its loops are stopped, and a second writer is found.

The first update after a takeover is delayed by the rules of the kinds.
"""
