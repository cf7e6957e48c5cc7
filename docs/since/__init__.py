"""Releases that introduced the names of the reference: ``docs/since/names.json``.

``python -m docs.since`` records new names, and drops removed ones.  A name of Koordinator,
Kubernetes or the descheduler has their release; any other one has a release of this project.

``table``         the recorded names, by scope
``golang``        constants, structs and literals of Go sources
``repositories``  releases of upstream with their files
``upstream``      names that a release of upstream has, by scope
"""
