"""The base of all wire types, which the server makes and clients read.

Every field has a default and unknown fields are ignored, so clients understand older and newer servers.
"""

from typing import Any, ClassVar, cast

import msgspec


class WireStruct(msgspec.Struct, frozen=True):
    """An object on the wire. A field that is None is not sent, or as null with `sends_null`."""

    sends_null: ClassVar[bool] = False

    def to_wire(self) -> dict[str, Any]:
        """Return the object as it is sent."""
        values = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return {
            name: _to_wire(value) for name, value in values if value is not None or self.sends_null
        }


def _to_wire(value: object) -> object:
    if isinstance(value, WireStruct):
        return value.to_wire()
    if isinstance(value, list):
        return [_to_wire(member) for member in cast("list[object]", value)]
    return value
