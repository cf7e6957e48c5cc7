"""In-memory machine for tests and simulations."""
