"""Runtime hooks: answers to a container runtime that is about to start a pod or a container.

Threads of their own answer from the state that the loop published last, so that no container waits
for the loop.
"""
