"""The port through which components use Kubernetes, and its adapters."""
