"""Anabranch: stream processing that scales itself without a master."""

from anabranch.runtime.graph import Pipeline, PipelineError, Retry, Scale, Step, Stream

__version__ = "0.1.0"
__all__ = ["Pipeline", "PipelineError", "Retry", "Scale", "Step", "Stream"]
