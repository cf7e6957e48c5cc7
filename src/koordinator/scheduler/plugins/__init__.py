"""One file (or folder) per plugin, each ending in its ``PLUGIN``.  None knows another.

``scheduler.profile`` lists them in the order in which they run.
"""
