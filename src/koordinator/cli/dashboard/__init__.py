"""``koord dashboard``."""
