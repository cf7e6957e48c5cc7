"""Dynamic resource allocation: devices for pods with ResourceClaims (resource.k8s.io).

``claims``         the claims of a pod, why it has to wait, and readiness of allocated devices;
                   events that may help a rejected pod
``device_ledger``  offered and allocated devices by row, in step with the state
``verdicts``       rows that can serve claims of one kind, refreshed row by row
``messages``       problems of each device of a node, and missing objects
``plugin``         the extension points
"""

from koordinator.scheduler.plugins.dynamic_resources.plugin import PLUGIN

__all__ = ["PLUGIN"]
