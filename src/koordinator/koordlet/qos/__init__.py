"""QoS strategies: state of the node in, intents with reasons out.  They write nothing."""
