"""The spec of a pool in parsed form: intent, policies, and the template from which VMs are made.

These modules read no VM and plan nothing.
"""
