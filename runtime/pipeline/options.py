"""How a run is carried out: what the command line and `Pipeline.start` can choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from anabranch.protocol.limits import DEFAULT_LIMITS, Limits
from anabranch.runtime.pipeline.spans import span_of
from anabranch.runtime.plan.spec import Span
from anabranch.runtime.policies.learnt_file import LearntFile, read_learnt
from anabranch.runtime.policies.script import Script, ScriptError, load_script
from anabranch.runtime.values.checks import PipelineError

Preloading = Literal["auto", "fork", "import"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Raises `PipelineError` for values that make no sense."""

    report: Path | None = None
    duration_s: float | None = None
    """End the input of every source after so long."""
    script: Script | None = None
    """May be given as text, or as the path of a file, as on the command line."""
    scaling: bool | None = None
    """Whether operators decide by themselves; None: yes, unless a script decides."""
    policy_dry_run: bool = False
    """Policies decide, but their decisions are only reported (events of kind `would_do`)."""
    transport: Literal["unix", "tcp"] = "unix"
    host: str = "127.0.0.1"
    """Where instances listen with transport `tcp`."""
    warm: int = 2
    """Idle processes kept ready."""
    seed: int | None = None
    """Of all random choices; None: drawn, and written to the report."""
    limits: Limits = DEFAULT_LIMITS
    preload: Preloading = "auto"
    """How instances get the pipeline: fork of this process, or a process that reads the file
    again. `auto` forks while this process has one thread; `fork` does so in any case, at the
    risk that a lock which another thread holds stays locked in the instances."""
    import_deadline_s: float = 120.0
    state: Path | None = None
    """Folder in which the run is kept, so that it can be resumed when all its processes are gone;
    removed when it is complete. None: the run outlives its instances, not this process."""
    resume: bool = False
    """Go on with the run in `state` that was killed, was stopped or has failed."""
    resume_or_begin: bool = False
    """As `resume` if `state` holds a run; otherwise begin one there."""
    fresh: bool = False
    """Give up the run in `state`, if there is one, and begin anew."""
    until_committed: bool = False
    """When the input ends, the stream does not: all that was read is finished, no window ends and
    no timer fires because of that, and `state` holds a savepoint, from which another run goes on.
    """
    begin_from: Path | None = None
    """The savepoint that a new run begins from."""
    learnt: Path | None = None
    """What controllers of another run have learnt, as `keep_learnt` has written it; those of a new
    run begin with it."""
    learnt_file: LearntFile | None = field(init=False, default=None)
    keep_learnt: Path | None = None
    """Where to write what the controllers have learnt, when the run has ended."""
    backfill: Span | None = None
    """Take only the tuples whose event times are in this span, and leave a savepoint in `state` for
    a run that goes on behind it. May be given as a pair: `("2026-01-01", "2026-06-30")`."""
    hang_s: float | None = None
    """End the process of an instance that has neither sent anything nor used processor time for
    so long, and resume it in a new one; None: only report it, for it may wait for a good reason."""
    on_output: Callable[[str, str], None] | None = None
    """Gets the name of an instance and each line that it printed, in the agent's thread; None:
    the line goes to this process's standard error. Must not block."""

    on_alert: Callable[[str], None] | None = None
    """Gets a line about each event that a user should act on while the run goes on (an instance
    that hangs, a full disk, a tuple that is left out, ...), in the agent's thread; None: it goes
    where `on_output` says. Must not block."""

    def __post_init__(self) -> None:
        for name in ("report", "state", "begin_from", "learnt", "keep_learnt"):
            if (path := getattr(self, name)) is not None:
                object.__setattr__(self, name, Path(path))  # may have been given as a string
        if isinstance(self.script, str):
            object.__setattr__(self, "script", _script_of(self.script))
        self._check_backfill()
        self._check_learnt()
        if self.duration_s is not None and not self.duration_s > 0:
            raise PipelineError(f"duration_s must be above 0, got {self.duration_s}")
        if self.hang_s is not None and not self.hang_s > 0:
            raise PipelineError(f"hang_s must be above 0, got {self.hang_s}")
        wishes = [w for w in ("resume", "resume_or_begin", "fresh") if getattr(self, w)]
        if wishes and self.state is None:
            raise PipelineError(f"{wishes[0]} needs state, the folder in which the run is kept")
        if len(wishes) > 1:
            raise PipelineError(f"either {' or '.join(wishes)}, not both")
        if self.until_committed and self.state is None:
            raise PipelineError("until_committed needs state, the folder for the savepoint")
        if self.begin_from is not None and self.resume:
            raise PipelineError(
                "either begin_from or resume: a run that is resumed has begun already"
            )
        if self.warm < 0:
            raise PipelineError(f"warm must be 0 or more, got {self.warm}")
        if self.seed is not None and not -(2**63) <= self.seed < 2**63:
            raise PipelineError(f"seed must fit into 64 bits, got {self.seed}")
        if self.policy_dry_run and not self.decides:
            raise PipelineError("policy_dry_run needs policies that decide: leave out the script")
        if self.transport not in ("unix", "tcp"):
            raise PipelineError(f"transport must be 'unix' or 'tcp', got {self.transport!r}")
        if self.preload not in ("auto", "fork", "import"):
            raise PipelineError(f"preload must be auto, fork or import, got {self.preload!r}")

    def _check_backfill(self) -> None:
        if self.backfill is None:
            return
        if not isinstance(self.backfill, Span):
            object.__setattr__(self, "backfill", span_of(*self.backfill))
        if self.begin_from is not None:
            raise PipelineError("either backfill or begin_from: a backfill begins with nothing")
        if self.state is None:
            raise PipelineError("backfill needs state, the folder for the savepoint")
        object.__setattr__(self, "until_committed", True)

    def _check_learnt(self) -> None:
        for name in ("learnt", "keep_learnt"):
            if getattr(self, name) is not None and not self.decides:
                raise PipelineError(f"{name} needs controllers that decide: leave out the script")
        if self.learnt is None:
            return
        if self.resume:
            raise PipelineError(
                "either learnt or resume: the controllers of a run that is resumed begin with what "
                "they had learnt themselves"
            )
        object.__setattr__(self, "learnt_file", read_learnt(self.learnt))

    @property
    def decides(self) -> bool:
        return self.script is None if self.scaling is None else self.scaling


def _script_of(text: str) -> Script:
    try:
        return load_script(text)
    except ScriptError as error:
        raise PipelineError(str(error)) from None
