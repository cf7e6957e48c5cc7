"""Devices of nodes: requests of pods, devices of nodes, and allocation.

``requests``, ``pod_request``  requests of pods per device, with the settings in annotations, and
                  resolved for one model
``vendor``, ``vendors``  specifics of single makers of accelerators
``report``, ``model``  Device objects as ``NodeDevices``; equal machines share a model; templates
``partitions``    the three ways to choose devices
``choice``        joint choice over all types, from bit masks alone
``free_devices``  devices in use, and devices that a pod may take
``plan``          a request on nodes of one model: feasibility and allocation
``allocation``  annotations written about an allocation
``scorer``        order of devices, and score of nodes

**Feasibility over many nodes.**  Whether a node has room for a request depends on the node's model
and on two sets of devices per type: devices that fit (healthy, enough left) and devices in use. A
plugin that keeps amounts as arrays ``(n_nodes, n_minors, n_amounts)`` gets both sets for many rows
from ``row_kernels`` and looks them up: one ``DevicePlan`` (and ``NumaHintTable``) per model and
request caches the answer for each state, computed once by running the real choice. Thousands of
nodes of a few models have at most a few hundred different states, so there is no search per node,
and no second set of rules that could disagree with the choice.

**Choice on one node.**  ``headrooms`` (or arrays of the plugin's own, as ``FreeDevices``) and
``DevicePlan.allocate`` with ``Scorer.ranking``, or with any other ranking of devices.

Bit ``m`` of a mask is the device with minor ``m``, as is row ``m`` of an array.
"""
