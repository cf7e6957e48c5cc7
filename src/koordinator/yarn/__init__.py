"""The YARN operator: NodeManagers get the batch resources that Kubernetes does not use.

``app``       the loop: news of Kubernetes and of YARN in, annotations and limits out
``mirror``    nodes, what their pods hold, and which NodeManager runs where
``cluster_state``  what is known of a YARN cluster, and which limits may still take effect
``follower``  one YARN cluster, asked in a thread of its own
``metrics``   gauges under the original's names
``copilot``   the agent on the node: which containers run, and which one is ended

Source: yarn-copilot pkg/controller/noderesource, pkg/yarn, pkg/copilot-agent.
"""
