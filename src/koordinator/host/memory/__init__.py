"""A machine that is a dictionary, for tests and simulation."""
