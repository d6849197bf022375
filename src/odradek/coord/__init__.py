"""The coordination store: one contract, Kafka's znodes in all implementations."""
