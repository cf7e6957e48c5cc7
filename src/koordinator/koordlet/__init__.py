"""Koordlet, the node agent: measures, reports, and keeps what its NodeSLO promises."""
