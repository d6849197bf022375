"""The asyncio producer: batches, partitioner, transactions."""
