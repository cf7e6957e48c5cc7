"""The ConfigMap slo-controller-config.

``overlay``      one strategy over another
``defaults``     strategies where nothing is said
``refusal``      why a configuration is refused, in the original's form
``ranges``       numbers that are out of range, and pairs in the wrong order
``node_entries`` which entry is a node's, and entries that could both be
``network_qos``  bandwidths that can't all be kept
``checks``       all of these: what the webhook refuses
``reader``       ``SloConfig``: every section as it was last valid
``strategies``   what it says about one node
"""
