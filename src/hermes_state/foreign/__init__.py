"""Conversations that another program wrote: read there, never changed, taken in here."""
