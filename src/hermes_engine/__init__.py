"""The engine: conversations at work. Accepts inputs, queues and runs turns, publishes events."""
