"""Every label and annotation that Koordinator reads or writes: one constant or codec per key.

Labels are in ``labels``; annotations are in one module per area, each a codec called like its key.
"""
