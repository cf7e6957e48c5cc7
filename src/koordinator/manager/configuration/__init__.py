"""The ConfigMap slo-controller-config.

``ranges``       default strategies; numbers out of range, and pairs in the wrong order; the entry
                 that selects a node, and overlapping entries
``checks``       validation of the ConfigMap by webhook and manager
``reader``       ``SloConfig``: every section as it was last valid
``strategies``   strategies of one node
"""
