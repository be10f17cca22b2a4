"""The JSON-RPC server that user interfaces talk to: conversations over stdio and websockets."""
