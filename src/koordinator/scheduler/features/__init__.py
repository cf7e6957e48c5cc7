"""Features of the scheduler besides finding nodes, one package each, independent of each other.

``gangs``         pods that start together, near to each other
``quotas``        elastic quotas and their job queues
``reservations``  capacity held for future pods
``topology``      status of the cluster network topology
``explanations``  reasons why a pod is pending
``audit``         audit trail of decisions with their reasons
``metrics``       metrics of the scheduler
``nodes``         pages about nodes

``scheduler.assembly`` assembles them; ``scheduler.loop.feature`` defines their interface.
"""
