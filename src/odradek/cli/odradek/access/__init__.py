"""Users and permissions: `odradek user`, `allow`, `deny`, `revoke` and `permissions`."""
