"""What the agent answers a container runtime that is about to start a pod or a container.

The answers come from what the loop published last, on threads of their own: whatever the loop does,
no container waits for it.
"""
