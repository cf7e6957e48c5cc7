"""``koord dashboard``: one page that shows a cluster live, and what decides in it.

Reads, and never writes to a cluster.  A thread follows a source and owns its scheduler; threads of
the server ask it between two steps; what changes goes to all readers as one encoded frame.

``sources``   what is looked at: manifests, a simulation, a recording, a cluster
``overview``  the whole cluster as a reader first sees it: nodes as columns, who waits and for what
``feed``      the loop: follows a source, answers questions, publishes overviews
``frames``    an overview for readers: what has changed since the last one
``broadcast`` frames to readers, each at its own speed
``queries``   what a page asks beside that: explanations, gangs, quotas, nodes
``attention`` what needs a person
``whatif``    the same cluster with something changed
``access``    who may see what
``server``    pages, queries and the stream over HTTP
"""
