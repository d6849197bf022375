"""Kafka's command-line tools, one module for each."""
