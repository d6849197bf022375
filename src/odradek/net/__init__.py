"""Sockets: listeners, accepted connections, and channels to other brokers."""
