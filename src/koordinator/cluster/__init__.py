"""How components see Kubernetes: the port and its adapters."""
