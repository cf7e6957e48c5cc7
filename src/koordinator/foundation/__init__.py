"""Ideas with no noun of Kubernetes in them: errors, time, quantities. Imports nothing of ours."""
