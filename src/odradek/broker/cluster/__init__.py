"""A broker in its cluster: metadata, other brokers, its registration, features."""
