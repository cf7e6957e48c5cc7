"""Control groups as facts: which file holds what, which folder belongs to whom.  No I/O."""
