"""Sends a run's lines of metrics to Weights & Biases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from actor_learner.reporting import logger as logger_lib
from actor_learner.support import configurable, errors, extras


@configurable.register
class WandbLogger:
    """Writes every row to a run of Weights & Biases, charted against `environment_steps`.

    ```
    Reporting.loggers = [@WandbLogger()]
    WandbLogger.project = 'cartpole'
    ```

    Its files go to `wandb/` in the run directory. A run that is resumed goes on as the same run
    there. Who one is, and where the server, is Weights & Biases' own matter: `wandb login`, or
    `$WANDB_API_KEY`; without a network `mode = 'offline'`, and `wandb sync` later.

    Args:
      project: Where the run is listed.
      entity: Whose project it is; None is the user's own.
      name: How it is called there; None is the name of the run directory.
      mode: "online", "offline" or "disabled"; None is what `$WANDB_MODE` says, else "online".
      tags: To find it by.
    """

    def __init__(
        self,
        project: str = "actor_learner",
        entity: str | None = None,
        name: str | None = None,
        mode: str | None = None,
        tags: Sequence[str] = (),
    ) -> None:
        if mode not in (None, "online", "offline", "disabled"):
            raise errors.ConfigError(
                f"WandbLogger.mode is {mode!r}: 'online', 'offline', 'disabled' or None"
            )
        self._project = project
        self._entity = entity
        self._name = name
        self._mode = mode
        self._tags = tuple(tags)
        self._run: Any = None

    def open(self, context: logger_lib.RunContext) -> None:
        """Begins the run, or goes on with it.

        Raises:
          errors.MissingExtraError: If wandb is not installed.
        """
        wandb = extras.require("wandb", "wandb")
        self._run = wandb.init(
            project=self._project,
            entity=self._entity,
            name=self._name or context.run_dir.name,
            id=context.run_id,
            resume="allow",
            mode=self._mode,
            tags=self._tags,
            dir=str(context.run_dir),
            config={**context.settings, "seed": context.description.get("seed")},
            # The run directory has the log; the terminal belongs to our own view.
            settings=wandb.Settings(console="off", silent=True),
        )
        self._run.define_metric("environment_steps")
        self._run.define_metric("*", step_metric="environment_steps")

    def write(self, row: logger_lib.Row) -> None:
        self._run.log(logger_lib.plain_row(row))

    def close(self) -> None:
        """Sends what is left; without a network wandb keeps it for `wandb sync`."""
        if self._run is not None:
            self._run.finish()
            self._run = None
