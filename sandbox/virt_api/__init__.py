"""The imitation of virt-api, without a state of its own. Only `server` and `registration` do I/O."""
