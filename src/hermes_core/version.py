"""The version of the program, in the one place that is cheap to read."""

VERSION = "0.1.0"
