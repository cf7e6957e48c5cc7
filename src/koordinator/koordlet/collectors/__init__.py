"""Collectors: readings of the host, converted to samples.

Each collector runs at an interval of its own.  If a source is missing, truncated or implausible,
only the samples of that round are lost.
"""
