"""The agent: the loop, models, tools, compaction. Synchronous; knows no user interface, no platform."""
