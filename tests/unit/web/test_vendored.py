"""The files of others that the browser executes are those that were examined."""

import hashlib
import json

from odradek.web.rendering import STATIC

VENDORED = STATIC / "vendor"
PINS = json.loads((VENDORED / "pins.json").read_text())


def test_each_file_has_the_recorded_hash_with_its_version_and_license():
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest()
             for file in VENDORED.glob("*.js")}  # fmt: skip

    assert found == {name: pin["sha256"] for name, pin in PINS.items()}
    assert all(pin["version"] and pin["license"] for pin in PINS.values())
    assert all((VENDORED / pin["license_file"]).is_file() for pin in PINS.values())
