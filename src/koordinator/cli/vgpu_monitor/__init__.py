"""``koord vgpu-monitor``."""
