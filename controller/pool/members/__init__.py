"""The objects of a pool as one reconciliation sees them: VMs, VMIs, unready periods, notes and revisions.

These modules answer questions about the members. They plan no write but that of revisions.
"""
