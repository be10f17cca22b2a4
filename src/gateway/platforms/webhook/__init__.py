"""Webhooks: what other programs report, signed, becomes a message to the agent."""
