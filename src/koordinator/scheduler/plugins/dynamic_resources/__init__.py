"""Devices for pods that claim them (resource.k8s.io).

``claims``         the claims of a pod, allocated or not, or why it has to wait
``device_ledger``  what is offered and what is allocated, by row, in step with the state
``verdicts``       which rows can serve claims of one kind, brought up to date row by row
``hints``          which events may help a rejected pod
``messages``       what is wrong with each device of a node
``readiness``      whether devices of a claim are ready for its pod, or never will be
``plugin``         the extension points
"""

from koordinator.scheduler.plugins.dynamic_resources.plugin import PLUGIN

__all__ = ["PLUGIN"]
