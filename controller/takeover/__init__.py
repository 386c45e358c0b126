"""The takeover from KubeVirt's own controller: its loops are stopped, and a second writer is found."""
