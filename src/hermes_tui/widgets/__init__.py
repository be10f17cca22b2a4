"""The widgets of the screens."""
