"""How much of what was asked for will hardly be used: histograms of the past, and their peaks."""
