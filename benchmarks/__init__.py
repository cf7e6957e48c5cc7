"""Measurements of speed and placement quality behind the project's claims.

``make bench`` runs them all and prints a table; ``python -m benchmarks NAME …`` runs some.
Nothing here is a test: a figure is reported with the size of the problem, never asserted.
"""
