"""Rules of the trade without I/O: what a pod asks for, selectors, GPU shares, fragmentation, prices."""
