"""The record batch (format v2): read, validate, set a leader's fields in place, encode."""
