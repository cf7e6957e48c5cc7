"""``koord dashboard``: a web page with the live state of a cluster and of its scheduler.

The dashboard reads a cluster and never writes to it.  One thread follows a source and owns its
scheduler.  The threads of the server put their queries to that thread, which answers them between
two steps.  Each change goes to all readers as one encoded frame.

``sources``   sources of cluster state: manifests, a simulation, a recording, a cluster
``overview``  state of the whole cluster: nodes as columns, pending pods by cause
``feed``      event loop: follows a source, answers queries, publishes overviews
``frames``    encoded overviews: the whole state, or the difference from the previous one
``broadcast`` delivery of frames to readers, each at its own speed
``queries``   queries of the page: explanations, gangs, quotas, nodes
``attention`` problems that need an administrator
``whatif``    the same cluster with some objects changed, or with the moves of a policy
``access``    namespaces and nodes that a user may see; other names are redacted
``server``    pages, queries and the event stream over HTTP
"""
