"""The consumer group protocol: what members exchange, and the assignors."""
