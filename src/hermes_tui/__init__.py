"""The terminal user interface: a Textual application that speaks the protocol of tui_gateway."""
