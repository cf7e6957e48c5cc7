"""The node as decisions see it: frozen, put together anew for every round."""
