"""A cluster seen from outside: connections, metadata, who leads. No broker code in here."""
