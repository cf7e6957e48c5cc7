"""Devices of nodes: what pods ask for, what nodes have, who gets which.

``requests``, ``claim``   what a pod asks of devices, per device; its wishes in annotations
``amounts``, ``combinations``, ``masks``, ``shortage``  the words that all of it is said in
``vendors``, ``templates``  what is special about single makers of accelerators
``report``, ``model``     a Device object becomes a ``NodeDevices``; equal machines share one model
``partitions``, ``topology``, ``plain_list``  the three ways to choose devices
``choice``                all types together, from bit masks alone
``usage``, ``headroom``       what pods hold, and what a pod may take
``parts``, ``plan``       a claim on nodes of one model: which have room, which devices it gets
``allocation``, ``adaptation``, ``node_lock``  what is written down about it
``numa_hints``, ``scorer``, ``share_restrictions``  what else a scheduler plugin is asked

**Feasibility over many nodes.**  Whether a claim has room on a node depends on the node's model and
on two sets of devices per type: those that fit (healthy, enough left) and those in use.  A plugin
that keeps amounts as arrays ``(n_nodes, n_minors, n_amounts)`` gets both sets for many rows from
``row_kernels`` and looks them up: one ``DevicePlan`` (and ``NumaHintTable``) per model and claim
remembers the answer to each state, found once by running the real choice.  Thousands of nodes of a
few models have at most some hundred different states, and states come back, so there is no search
per node, and no second set of rules that could disagree with the choice.

**Choice on one node.**  ``headrooms`` (or arrays of the plugin's own, as ``FreeDevices``) and
``DevicePlan.allocate`` with ``Scorer.ranking``, or with any other ranking of devices.

Bit ``m`` of a mask is the device with minor ``m``, as is row ``m`` of an array.
"""
