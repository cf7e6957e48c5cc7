"""View of the node for decisions: frozen, and rebuilt in each round."""
