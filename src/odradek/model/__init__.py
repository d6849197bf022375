"""Nouns: values with the invariants that hold wherever they are seen."""
