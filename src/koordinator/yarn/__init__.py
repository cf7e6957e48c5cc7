"""YARN operator: assigns the batch resources that Kubernetes does not use to NodeManagers.

``app``       control loop: events of Kubernetes and YARN in, annotations and limits out; metrics
``mirror``    cache of nodes, requests of their pods, and NodeManagers; state of a YARN cluster,
              with limits that may still take effect
``follower``  client of one YARN cluster, in a separate thread
``copilot``   agent on the node: lists and ends containers

Source: yarn-copilot pkg/controller/noderesource, pkg/yarn, pkg/copilot-agent.
"""
