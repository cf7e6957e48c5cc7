"""Rules of the trade without I/O.

What a pod asks for, selectors, GPU shares, fragmentation, prices.
"""
