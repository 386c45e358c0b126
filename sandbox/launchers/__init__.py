"""The optional simulation of virt-launcher Pods, their nodes, and migrations. Only `simulator` is not pure."""
