"""The supervisor: a cluster on one machine, with a process for each broker."""
