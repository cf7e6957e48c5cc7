"""Koordlet, the node agent: measure usage, report it, and enforce the NodeSLO."""
