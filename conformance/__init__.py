"""Checks the behaviours of replica sets and pools on a cluster.

The cases read and write only objects of the API server. So the cases work with every controller: vmherd in each mode,
or KubeVirt's virt-controller. docs/conformance.md is the manual.
"""
