"""Replica placement: pure rules for assignments of topics, partitions and reassignments."""
