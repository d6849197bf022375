"""TLS and SASL of a client's connection."""
