"""Names of things, each its own type, so that a node's id is never handed in where a replica's belongs."""

from typing import NewType

ModelName = NewType("ModelName", str)
"""A model's public name, byte for byte as the catalog gives it; also the name its engines are started with."""

ReplicaId = NewType("ReplicaId", str)
"""One replica: `<slug of the model>-<base-36 number>`, unique in a fleet for ever, safe in paths and labels."""

NodeId = NewType("NodeId", str)
RouterId = NewType("RouterId", str)
PoolName = NewType("PoolName", str)

DeviceId = NewType("DeviceId", str)
"""A device's identity: its UUID, or its PCI bus id where it has none. Never its index."""

SpecId = NewType("SpecId", str)
"""Digest of a rendered launch spec; equal specs share it."""

Fingerprint = NewType("Fingerprint", str)
"""Digest of the catalog's own inputs of a replica: equal means the same running thing."""
