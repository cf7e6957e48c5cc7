"""The ConfigMap slo-controller-config.

``defaults``     default strategies
``ranges``       numbers out of range, and pairs in the wrong order; the entry that selects a node,
                 and overlapping entries
``network_qos``  network bandwidths that exceed the total
``checks``       validation of the ConfigMap by webhook and manager
``reader``       ``SloConfig``: every section as it was last valid
``strategies``   strategies of one node
"""
