"""Who a client is, and what it may do: authentication and authorization, without I/O."""
