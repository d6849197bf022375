"""Kafka's wire protocol: frames, headers, and messages declared once and encoded both ways."""
