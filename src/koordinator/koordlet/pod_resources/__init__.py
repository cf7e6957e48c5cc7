"""PodResources proxy: the kubelet's answers, completed by the devices that Koordinator allocated.

The kubelet itself knows devices of device plugins only.
"""
