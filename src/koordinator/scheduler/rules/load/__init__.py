"""Load of nodes: measured usage, and estimated usage of pods that are not measured yet.

``rules``       resources, windows and limits
``measurement`` a NodeMetric in numbers
``pod_load``    estimated usage of a pod, and its contribution to the node's load
``limits``      thresholds from arguments and node annotations
``kernels``     verdict and score over many nodes

Source: koordinator pkg/scheduler/plugins/loadaware.
"""
