"""The rules of the protocol, one file per subject; `anabranch.protocol.table` arranges them."""
