"""``koord node``: diagrams of nodes."""
