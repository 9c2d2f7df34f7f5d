"""Network attachments of the pods of one node, by the plugins of the CNI specification."""
