"""The demo: flights of 2013 through a cluster that loses a broker. `./run demo`, `odradek demo`.

command.py      the command, and the small demo with one broker
flights.py      the main job: cluster, producers, a broker that is killed, Spark
departures.py   the Spark job
rows.py         tables of pandas as records
result.py       the direct computation, the comparison, the table, the chart
"""
