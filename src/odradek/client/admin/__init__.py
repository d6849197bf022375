"""Requests of administrators, one module for each kind of thing."""
