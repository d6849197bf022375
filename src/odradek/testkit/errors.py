"""What the test kit raises when a verb cannot be carried out."""

from odradek.model.errors import OdradekError


class KitError(OdradekError):
    """A verb of the kit cannot be carried out; the message has the reason, and what to do."""
