"""The asyncio consumer: fetching, subscription state, group membership."""
