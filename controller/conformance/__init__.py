"""Checks the behaviours of replica sets and pools on a cluster, without any knowledge of the controller.

The cases read and write only objects of the API server. So they check every controller in the same way: vmherd in each
mode, or KubeVirt's virt-controller. The package imports nothing of vmherd's rules. docs/conformance.md is the manual.
"""
