"""Reads a broker's files directly, without a broker: as rows, and without writing anything.

    from odradek.files.segments import batches
    from odradek.files.internal_topics import group_rows, transaction_rows
    from odradek.files.examine import examine

    for batch in batches("data/orders-0/00000000000000000000.log"):
        for record in batch.records():
            ...
    for finding in examine("data/orders-0"):
        print(finding)

    segments           `.log`: batches and their records
    indexes            `.index`, `.timeindex`, `.txnindex`
    snapshots          `.snapshot`: producer state of a partition
    checkpoints        offsets, leader epochs, `meta.properties`, `partition.metadata`
    internal_topics    `__consumer_offsets`, `__transaction_state`
    arrow              segments as Arrow tables (the extra `arrow`)
    examine            torn batches, gaps, damage, hanging transactions

Files are read piece by piece, so they may be larger than memory and may belong to a broker that
runs. Apache Kafka's files are read as well.
"""
