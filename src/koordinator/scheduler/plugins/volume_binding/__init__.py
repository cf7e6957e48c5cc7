"""Volume binding: placement of pods together with their volumes.

``claims``   bound claims of a pod, and claims that wait for its node; existing volumes for them, on
             every node at once; the nodes that a volume can be used on, or where a new one can be
             provisioned; events that may help a rejected pod
``outcome``  verdicts and scores by node, and the objects to assume on the chosen one
``plugin``   the extension points
"""

from koordinator.scheduler.plugins.volume_binding.plugin import PLUGIN

__all__ = ["PLUGIN"]
