"""A program that behaves as a broker for its supervisor, and starts in 30 milliseconds.

Options: `fake.dies=WORDS` (prints them and exits at once), `fake.mute=true` (never reports that it
serves), `fake.stubborn=true` (does not stop on SIGTERM).
"""

import pathlib
import signal
import sys

from odradek.config.properties import parse
from odradek.local.ready import report_ready

_, verb, file, option, fd, *_ = sys.argv
assert (verb, option) == ("server-start", "--ready-fd")
properties = parse(pathlib.Path(file).read_text())
sys.stderr.write(f"broker {properties['broker.id']} says hello\n")
if "fake.dies" in properties:
    sys.exit(properties["fake.dies"])
if "fake.stubborn" in properties:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "fake.mute" not in properties:
    http = f"http://{properties['odradek.http.host']}:{properties['odradek.http.port']}"
    report_ready(int(fd), listeners=[properties["listeners"]], http=http)
signal.pause()
