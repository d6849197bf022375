"""Client quotas: which limit holds for a client, and what it has used. Pure: times are given."""
