"""DRA kubelet plugin of the node's GPUs."""
