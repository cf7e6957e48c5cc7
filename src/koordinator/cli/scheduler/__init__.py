"""``koord scheduler``."""
