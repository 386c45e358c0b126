"""A server with the objects of a large cluster, for measurements without etcd and kube-apiserver."""
