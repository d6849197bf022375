"""A cluster in one process, in no time."""
