"""What the tests stand on: processes, clusters, wire-level fakes and peers."""
