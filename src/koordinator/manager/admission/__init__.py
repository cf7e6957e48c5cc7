"""Admission: mutation and validation of requests before the API server stores the object.

Pure functions of the request and a ``Lookup``: the webhook server calls them with objects as JSON
sent by the API server, the embedded cluster with its own.

``request``        admission requests and denials
``lookup``         port to the other objects of the cluster
``gates``          feature gates
``profiles``       colocation profiles of pods and reservation templates
``translation``    batch, mid and GPU resources in place of those that the pod requests
``quota_tree``     node affinity for the quota tree of a pod
``pod_mutation``   the mutating pod webhook, which runs these in order
``pod_validation`` the validating pod webhook: QoS class, priority, devices, quota, labels
``metadata``       required labels and unreadable annotations
``scheduler_keys`` annotations and labels that only the scheduler may write
``quotas``         ElasticQuotas and their pods
``quota_usage``    the usage of a quota that new pods are charged to
``tenancy``        rights of a namespace on quotas and reservations of another one
``nodes``          amplified node status, and labels that two strategies select
``binding``        users that may bind pods
``hooks``          table of all hooks: path, name, objects, gate
"""
