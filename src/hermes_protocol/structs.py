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
        wire: dict[str, Any] = {}
        for name in self.__struct_fields__:  # for every piece of a reply, so it calls little
            value = getattr(self, name)
            if type(value) in _PLAIN:
                wire[name] = value
            elif value is not None or self.sends_null:
                wire[name] = _to_wire(value)
        return wire


_PLAIN = frozenset({str, int, float, bool})


def _to_wire(value: object) -> object:
    if isinstance(value, WireStruct):
        return value.to_wire()
    if isinstance(value, list):
        return [_to_wire(member) for member in cast("list[object]", value)]
    return value
