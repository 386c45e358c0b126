"""Values and pure rules of KubeVirt's API: types, selectors, conditions, owners. No I/O, no clock."""
