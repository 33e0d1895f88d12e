"""MQTT at the ends of a pipeline: devices as a source, and as a sink."""
