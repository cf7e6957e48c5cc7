"""``koord koordlet``: the node agent."""
