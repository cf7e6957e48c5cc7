"""The Kubernetes adapter of ``koordinator.cluster.port``: HTTP to a kube-apiserver."""
