"""The scheduler: a pure core over arrays, a small loop, and a room for each feature.

The core is ``snapshot``, ``plugins``, ``cycle`` and ``queue``; ``binding`` takes a decided pod to
its node, ``loop`` takes events in and decides, ``features`` do everything else, and ``assembly``
puts all of it together.

Reading order: ``snapshot`` (what is known), ``contract`` (what a plugin is), one plugin such as
``plugins/node_resources_fit.py``, ``cycle`` (one pod or a run of them through the stages),
``binding/life.py``, ``loop/scheduler.py``, ``loop/feature.py``, one feature such as ``quotas``.
"""
