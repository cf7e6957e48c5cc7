"""Built-in scheduler plugins, one file or folder each, ending in its ``PLUGIN`` spec.

Plugins do not import each other.  ``scheduler.profile`` lists them in the order they run.
"""
