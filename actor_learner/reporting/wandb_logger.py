"""Sends a run's lines of metrics to Weights & Biases."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from absl import logging

from actor_learner.reporting import logger as logger_lib
from actor_learner.support import configurable, errors, extras

_FINISH_SECONDS = 60.0


@configurable.register
class WandbLogger:
    """Writes every row to a run of Weights & Biases, charted against `environment_steps`.

    ```
    Reporting.loggers = [@WandbLogger()]
    WandbLogger.project = 'cartpole'
    ```

    Its files go to `wandb/` in the run directory. A run that is resumed goes on as the same run
    there. Log in with `wandb login` or `$WANDB_API_KEY`. Without a network use `mode = 'offline'`,
    and `wandb sync` later; a run that cannot reach the server when it begins does so by itself.

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
        """Begins the run, or resumes it.

        Raises:
          errors.MissingExtraError: If wandb is not installed.
          errors.ConfigError: If it does not know the user.
        """
        wandb = extras.require("wandb", "wandb")
        try:
            self._run = self._begin(wandb, context, self._mode)
        except (wandb.errors.AuthenticationError, wandb.errors.UsageError) as error:
            raise errors.ConfigError(
                f"WandbLogger cannot begin its run: {error}. Log in with `wandb login` or "
                "$WANDB_API_KEY, or bind WandbLogger.mode = 'offline'"
            ) from error
        except wandb.errors.CommError as error:
            logging.warning(
                "Weights & Biases is not reached; rows are kept in %s/wandb, for `wandb sync`: %s",
                context.run_dir,
                error,
            )
            self._run = self._begin(wandb, context, "offline")
        self._run.define_metric("environment_steps")
        self._run.define_metric("*", step_metric="environment_steps")

    def _begin(self, wandb: Any, context: logger_lib.RunContext, mode: str | None) -> Any:
        return wandb.init(
            project=self._project,
            entity=self._entity,
            name=self._name or context.run_dir.name,
            id=context.run_id,
            resume="allow",
            mode=mode,
            tags=self._tags,
            dir=str(context.run_dir),
            config={**context.settings, "seed": context.description.get("seed")},
            # The run directory has the log; the terminal belongs to our own view.
            settings=wandb.Settings(console="off", silent=True),
        )

    def write(self, row: logger_lib.Row) -> None:
        self._run.log(logger_lib.plain_row(row))

    def close(self) -> None:
        """Sends what is left, for a minute at most; wandb keeps the rest for `wandb sync`."""
        if self._run is None:
            return
        run, self._run = self._run, None
        failures = []

        def finish() -> None:
            try:
                run.finish()
            except Exception as error:  # noqa: BLE001 - raised again below.
                failures.append(error)

        sending = threading.Thread(target=finish, name="wandb", daemon=True)
        sending.start()
        sending.join(_FINISH_SECONDS)
        if sending.is_alive():
            logging.warning(
                "Weights & Biases has not taken all rows within %g s; send them with `wandb sync` "
                "in the run directory",
                _FINISH_SECONDS,
            )
        if failures:
            raise failures[0]
