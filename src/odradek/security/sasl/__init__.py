"""The server's side of SASL: one state machine for each mechanism, and one for each connection.

Not wired to a listener in this version: the broker serves PLAINTEXT only.
"""
