"""The ``koord`` command.  The composition root: chooses adapters, builds components, prints."""
