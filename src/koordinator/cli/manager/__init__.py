"""``koord manager``."""
