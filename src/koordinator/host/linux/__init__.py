"""The machine that this process runs on."""
