"""Proofs about the whole gateway, shipped so that anybody can run them."""
