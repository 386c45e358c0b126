"""A server with the objects of a large cluster, for measurements without etcd and kube-apiserver.

It is one process with one client, and serves the requests that a controller sends when it starts and when single VMIs
change. Objects are rendered when a client asks for them.
"""
