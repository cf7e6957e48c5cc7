"""Admission: mutation and validation of requests before the API server stores the object.

Pure functions of the request and a ``Lookup``: the webhook server calls them with objects as JSON
sent by the API server, the embedded cluster with its own.

``lookup``          port to the other objects of the cluster; admission requests and denials
``gates``           feature gates; users that may bind pods
``profiles``        colocation profiles of pods and reservation templates
``pod_mutation``    the mutating pod webhook, which runs these in order; batch, mid and GPU
                    resources in place of those that the pod requests; node affinity for the quota
                    tree of a pod
``pod_validation``  the validating pod webhook: QoS class, priority, devices, quota, labels
``metadata``        required labels and unreadable annotations; amplified node status, and labels
                    that two strategies select
``quotas``          ElasticQuotas and their pods; the usage of a quota that new pods are charged to
``tenancy``         rights of a namespace on quotas and reservations of another one; annotations and
                    labels that only the scheduler may write
``hooks``           table of all hooks: path, name, objects, gate
"""
