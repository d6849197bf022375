"""Transactions: those that are open, what they hold back, and how a hanging one is ended."""
