"""The supervisor: a cluster on one machine, one process a broker."""
