"""TLS around the connections of `net`: contexts, the protocol, and the connector."""
