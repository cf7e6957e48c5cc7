"""What becomes of a request before the API server stores it.

Pure functions of the request and a ``Lookup``: the webhook server calls them with objects as JSON
sent by the API server, the embedded cluster with its own.

``request``        what is asked, and the answers
``lookup``         what else exists
``gates``          what is switched on
``profiles``       which colocation profiles apply to a pod, and what they make of it
``translation``    batch, mid and GPU resources in place of what the pod wrote
``quota_tree``     the nodes of the quota tree that a pod belongs to
``pod_mutation``   all of these in order
``pod_rules``      what QoS classes, priorities and devices go together
``pod_validation`` these, quotas, and labels that somebody requires
``quotas``         ElasticQuotas and their pods
``nodes``          amplification, and labels that two strategies select
``config_maps``    slo-controller-config
``reservations``   profiles on the template of a reservation
``binding``        who may bind pods
``hooks``          the table of all: path, name, objects, gate
"""
