"""What must hold of brokers, replicas and clients' histories."""
