"""What the kubelet is answered that prepares claims of the GPUs which this node offers."""
