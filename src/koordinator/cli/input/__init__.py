"""Input of commands: manifests, a live cluster, configurations, scopes and times."""
