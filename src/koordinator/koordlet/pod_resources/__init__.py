"""What those are answered who ask the kubelet which devices its pods have.

The kubelet knows of device plugins only; what Koordinator gave the pods is added to its answers.
"""
