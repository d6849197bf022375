"""Faults and sample data for a cluster on this machine."""
