"""``koord device-daemon``."""
