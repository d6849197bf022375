"""Bytes to messages and back: Kafka's protocol, declared once."""
