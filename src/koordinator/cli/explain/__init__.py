"""``koord explain``: reasons of waiting pods, and remedies."""
