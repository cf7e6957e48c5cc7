"""Objects that the agent reports: usage, topology, devices, slices.  Samples in, objects out."""
