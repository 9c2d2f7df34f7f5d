"""Rules about volumes that more than one CSI controller needs; all of them pure."""
