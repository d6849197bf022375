"""One file for each API, named as Kafka names it."""
