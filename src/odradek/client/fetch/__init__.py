"""Requests to partition leaders: fetches and offsets, with retries when a leader moves."""
