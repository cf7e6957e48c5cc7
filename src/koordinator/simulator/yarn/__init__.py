"""A YARN cluster over virtual time, its operator and copilot the real ones.

``applications``      what comes to the queues, drawn before the run begins
``resource_manager``  queues, limits and who gets the next container: ``hadoop.port`` in memory
"""
