"""State: everything that a circuit keeps, as a registry, snapshots, and import and export."""
