"""The asyncio consumer: fetching, subscriptions, its group's coordinator."""
