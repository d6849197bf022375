"""The log on disk, in Kafka's file formats, byte for byte."""
