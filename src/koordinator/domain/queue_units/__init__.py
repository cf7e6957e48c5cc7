"""Units: jobs that have no pods yet and wait for room in their quota.

No I/O, no clock.  A job comes suspended; a QueueUnit stands for it, and counts in its quota from
the moment it is let in until its pods are gone.

``kinds``      which jobs these are, as data
``jobs``       a job of any kind, as queues see it
``queues``     how units wait, as the object of their queue says
``places``     which queue and which quota a unit belongs to
``accounts``   what units hold of what they share; in a quota and above it (``quotas``), in a tree
               of quotas (``quota_tree``), in a namespace (``namespace_quotas``)
``life``       what becomes of one unit: phases, time-outs, limits
``admission``  which of the units that wait are let in, and who has to go for them

Source: koord-queue 1.8 (github.com/koordinator-sh/koord-queue).
"""
