"""What the API server is told about a node: usage, topology, devices.  Samples in, objects out."""
