"""One broker: its disks with a forecast, and what happens if it fails now."""
