"""The ledger of a store, as functions of a transaction."""
