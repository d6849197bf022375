"""The log on disk: Kafka's files, byte for byte."""
