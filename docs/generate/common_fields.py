"""Meanings of fields that are the same in every object that has them.

A comment at the field itself goes before these.
"""

from collections.abc import Mapping
from typing import Final

#: By the name of the attribute.
COMMON_FIELDS: Final[Mapping[str, str]] = {
    # objects
    "api_version": "API version of the object",
    "kind": "kind of the object",
    "metadata": "name, namespace, labels, annotations and what the API server adds",
    "spec": "desired state",
    "status": "observed state",
    "name": "name of the object",
    "namespace": "namespace of the object",
    "uid": "UID of the object",
    "resource_version": "resourceVersion of the object",
    "field_path": "field of the object that the reference is about",
    "controller": "whether the reference is to the managing controller",
    "block_owner_deletion": "whether the owner is deleted in the foreground only after the object",
    # lists of Kubernetes
    "key": "key to compare",
    "operator": "relation between the key and the values",
    "value": "value to compare",
    "values": "values to compare",
    "effect": "effect of the taint: NoSchedule, PreferNoSchedule or NoExecute",
    "time_added": "time at which a NoExecute taint was added",
    "match_expressions": "requirements on labels",
    "match_fields": "requirements on fields: only metadata.name",
    "tolerations": "taints that are tolerated",
    # selections
    "label_selector": "labels of the selected pods; unset selects all",
    "node_selector": "labels of the selected nodes",
    "pod_selectors": "selectors; a pod that matches one of them may be moved; empty: every pod",
    "selector": "labels of the selected pods",
    "namespaces": "namespaces to include or to exclude; unset means all",
    "evictable_namespaces": "namespaces whose pods may be evicted; unset means all",
    "include": "only these",
    "exclude": "all but these",
    "exclude_owner_kinds": "kinds of owner whose pods are ignored",
    "including_init_containers": "whether init containers count too",
    "including_ephemeral_containers": "whether ephemeral containers count too",
    # plugins
    "enabled": "plugins to enable, in order",
    "disabled": "plugins to disable; * disables all",
    "plugin_config": "arguments by plugin",
    "args": "arguments of the plugin",
    "weight": "weight of the score",
    "paused": "whether the plugin does nothing",
    "dry_run": "whether evictions are only logged",
    "node_fit": "whether a pod is evicted only if it fits another node",
    "priority_threshold": "pods of this priority or a higher one are not evicted",
    "min_candidate_nodes_percentage": "share of the nodes to try preemption on, in percent",
    "min_candidate_nodes_absolute": "least number of nodes to try preemption on",
    "expected": "expected mix of pods; unset takes the pods that run",
    # processes
    "leader_election": "election of the active replica",
    "leader_elect": "whether replicas elect a leader",
    "lease_duration": "time after which a lease that is not renewed is free",
    "renew_deadline": "time within which the leader must renew its lease",
    "retry_period": "time between two attempts to get or to renew the lease",
    "resource_lock": "kind of the lock: leases",
    "resource_name": "name of the lease",
    "resource_namespace": "namespace of the lease",
    "client_connection": "connection to the API server",
    "kubeconfig": "path of the kubeconfig file; empty means the service account of the pod",
    "accept_content_types": "content types that responses may have",
    "content_type": "content type of requests",
    "qps": "requests per second",
    "burst": "requests that may exceed the rate at once",
    "enable_profiling": "whether profiles are served at /debug/pprof",
    "enable_contention_profiling": "whether lock contention is profiled",
    "profiles": "profiles of plugins",
}
