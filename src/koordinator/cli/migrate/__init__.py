"""Command ``koord migrate``."""
