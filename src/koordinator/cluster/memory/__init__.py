"""An in-process API server for simulation, tests and embedding.  No I/O, one thread."""
