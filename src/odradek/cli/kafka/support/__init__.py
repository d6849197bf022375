"""Shared by Kafka's tools: flags, tables, formats."""
