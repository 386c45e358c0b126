"""The controller of VirtualMachinePools.

All decisions are made by pure functions. The reconciler calls these functions through the module `rules`.
"""
