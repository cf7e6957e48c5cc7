"""Readings of the host become samples.

Each collector does one thing at one interval.  A source that is missing, half-written or absurd
costs the samples of that round, never more.
"""
