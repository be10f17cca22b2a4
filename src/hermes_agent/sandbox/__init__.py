"""Sandboxes that commands run in, their detection, and the end of what would outlive us."""
