"""The scheduler: a pure core over arrays inside a thin shell.

The core is ``snapshot``, ``plugins``, ``cycle`` and ``queue``; the shell is ``app``.

Reading order: ``snapshot`` (what is known), ``contract`` (what a plugin is), one plugin such as
``plugins/node_resources_fit.py``, ``cycle`` (one pod or a run of them through the stages), ``app``.
"""
