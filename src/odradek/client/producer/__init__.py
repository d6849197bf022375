"""The asyncio producer: accumulated batches, partitioner, transactions."""
