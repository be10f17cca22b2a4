"""The rules of the conformance suite, a module for each thing that a store keeps."""
