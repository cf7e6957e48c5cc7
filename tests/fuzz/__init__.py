"""Random mixed worlds through the whole scheduler, with what must hold as checks.

``python -m tests.fuzz`` looks for worlds that break a rule and prints how to see it again.
"""
