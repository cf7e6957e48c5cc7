"""How loaded nodes are: what was measured, and what pods will use that no measurement shows yet.

``rules``       which resources, windows and limits count
``measurement`` a NodeMetric in numbers
``pod_load``    what a pod is estimated to use, and what that adds to its node's load
``limits``      thresholds, of the arguments and of single nodes
``kernels``     verdict and score over many nodes

Source: koordinator pkg/scheduler/plugins/loadaware.
"""
