"""Strategies: the node as it is in, intents with their reasons out.  They write nothing."""
