"""Plugins of the descheduler, one file each; they know nothing of one another."""
