"""The agent of YARN on a node: which containers run, and which are ended.

``agent``   what is asked of it, answered; no HTTP
``socket``  the same over a socket of the node

Source: yarn-copilot pkg/copilot-agent.
"""
