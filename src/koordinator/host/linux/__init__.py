"""Implementation of the ports for the Linux machine of this process."""
