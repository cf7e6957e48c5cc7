"""What the project claims about speed and placement quality, measured.

``make bench`` runs them all and prints a table; ``python -m benchmarks NAME …`` runs some.
Nothing here is a test: a figure is reported with the size of the problem, never asserted.
"""
