"""Command ``koord experiment``."""
