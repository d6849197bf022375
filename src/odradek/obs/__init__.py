"""What an operator sees: metrics under Kafka's names, the state-change log."""
