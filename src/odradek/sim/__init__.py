"""The simulator: a cluster with clients and faults in one process, in simulated time."""
