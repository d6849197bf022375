"""Replication lanes: the replicas of a partition as lanes on one offset axis, as values and as SVG.

`values` holds the facts, `axis` decides which offsets are shown, `words` says the picture in
sentences, and `drawing` draws it. `heat` orders the partitions of a large topic, worst first.
Everything here is a pure function of its arguments.
"""
