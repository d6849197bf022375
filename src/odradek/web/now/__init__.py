"""The first view: what is wrong now, and the brokers."""
