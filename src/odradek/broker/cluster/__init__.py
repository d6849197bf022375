"""What a broker has of the cluster: metadata, other brokers, its registration, features."""
