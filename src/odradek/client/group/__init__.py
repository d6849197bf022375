"""The consumer group protocol: subscriptions and assignments on the wire, and the assignors."""
