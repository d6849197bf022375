"""The server's side of SASL: one state machine for each mechanism, and one for each connection."""
