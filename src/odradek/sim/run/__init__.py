"""One simulation from its seed, and the search over many seeds."""
