"""What every long-running component needs of its process: serving, leading, logs, signals."""
