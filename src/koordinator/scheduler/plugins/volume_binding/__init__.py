"""Bring pods and their volumes together on one node.

``claims``         which of the pod's claims are bound, and which wait for its node
``reach``          the nodes that a volume can be used on
``matches``        an existing volume for each waiting claim, on every node at once
``provisioning``   where a new volume could be made instead
``outcome``        all of this for one pod: verdicts by node, and what to assume on the chosen one
``capacity_score`` how full the chosen volumes would be
``hints``          which events may help a rejected pod
``plugin``         the extension points
"""

from koordinator.scheduler.plugins.volume_binding.plugin import PLUGIN

__all__ = ["PLUGIN"]
