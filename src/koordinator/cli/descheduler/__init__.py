"""``koord descheduler``."""
