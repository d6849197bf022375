"""Sockets: listeners, connections, channels to other brokers."""
