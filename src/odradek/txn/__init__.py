"""The transaction coordinator's mind: which transactions there are, and how they end. Pure."""
