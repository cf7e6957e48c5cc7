"""``koord simulate``: workloads and traces, and reports about them."""
