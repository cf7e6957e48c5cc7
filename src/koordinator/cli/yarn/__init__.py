"""``koord yarn-operator`` and ``koord yarn-copilot``."""
