"""The transaction coordinator's state machine: transactional ids and their transactions. Pure."""
