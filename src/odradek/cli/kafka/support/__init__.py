"""What Kafka's tools share: flags, tables, formats."""
