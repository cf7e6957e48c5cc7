"""Rules that at least two components share, without I/O.

Pod requests, quotas, gangs, the network, devices, GPU fragmentation and prices.
"""
