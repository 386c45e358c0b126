"""A server that speaks the protocol of the API server from memory, for measurements with very many objects.

etcd and kube-apiserver need most of the CPU time of a large measurement. This server needs little, because it renders
its objects from recorded ones. It has no schemas, no admission, no garbage collection and no KubeVirt.
"""
