"""Volumes of a pod: its claims, and plugins of the tree that CSI drivers replace."""
