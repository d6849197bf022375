"""Which broker holds what: rules on values."""
