"""The simulation of virt-launcher Pods, their nodes, and migrations. It is optional: VMIs also run without Pods.

All modules but `simulator` are pure.
"""
