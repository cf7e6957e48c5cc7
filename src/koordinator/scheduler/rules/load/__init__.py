"""Load of nodes: measured usage, and estimated usage of pods that are not measured yet.

``rules``     resources, windows and limits
``pod_load``  estimated usage of a pod, and its contribution to the node's load
``kernels``   verdict and score over many nodes

Source: koordinator pkg/scheduler/plugins/loadaware.
"""
