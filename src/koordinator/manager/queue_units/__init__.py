"""Queue units: jobs without pods that wait for room in their quota.

A job is created suspended. A QueueUnit represents it, and counts in its quota from its admission
until it has no pods.

``kinds``          kinds of jobs, as data
``jobs``           a job of any kind, as queues see it
``pod_sets``       the pods that a job will create, and their requests
``ledgers``        amounts held by units in a quota and its ancestors, and in a namespace; order of
                   waiting units, by the strategy of their Queue
``quota_tree``     amounts held by units in a tree of quotas
``life``           phases, timeouts and limits of one unit
``admission``      units to admit, and units to preempt for them
``configuration``  flags and files of koord-queue
``plugins``        plugins of koord-queue: queue and quota of a unit, its ledgers, Queues
``controller``     objects in, writes out
``visibility``     positions in queues for the aggregated API

Source: koord-queue 1.8 (github.com/koordinator-sh/koord-queue).
"""
