"""Manifests of files, folders and standard input as objects.

``reader``         typed, defaulted, validated objects
``input_objects``  what was read, and notices about what has no effect
``known_fields``   fields that kinds have, for misspelt ones
"""
