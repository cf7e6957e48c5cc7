"""Command ``koord doctor``: checks of an installation and of a node, each finding with a remedy."""
