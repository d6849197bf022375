"""What is known of the cluster: collected once for all viewers, as often as somebody looks."""
