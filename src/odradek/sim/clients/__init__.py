"""Simulated clients that take part in some seeds only."""
