"""Kafka's tools that produce and consume records."""
