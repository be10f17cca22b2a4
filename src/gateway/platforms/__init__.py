"""The platforms: one folder each, with a manifest, an adapter and a pure translation."""
