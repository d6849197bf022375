"""Scenarios for the simulated cluster, written by hand: tests and stories play them."""
