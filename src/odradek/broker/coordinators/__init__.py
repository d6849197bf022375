"""The shells around the group and the transaction coordinator."""
