"""Checks of brokers, replicas and clients' histories."""
