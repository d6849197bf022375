"""TLS and SASL of client connections."""
