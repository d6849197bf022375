"""Key stores, certificates and the principals in them: pure. Connections are in `net/tls`."""
