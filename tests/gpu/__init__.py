"""Prepared run on a machine with a real NVIDIA GPU: ``tests/gpu/run.sh``."""
