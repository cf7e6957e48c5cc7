"""Copilot, the agent on a node that lists and ends YARN containers.

``agent``   operations without HTTP
``socket``  HTTP server on a Unix socket of the node

Source: yarn-copilot pkg/copilot-agent.
"""
