"""Exports of conversations in formats for people and other programs."""
