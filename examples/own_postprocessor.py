"""A postprocessor of one's own: what it makes of an episode is what is sent.

Used by `examples/own_postprocessor.gin`. It sees each episode as a whole, when it has ended.
"""

import gin
import numpy as np


@gin.configurable
def at_the_end(episode, share=1.0):
    """Gives a share of an episode's rewards with its last step instead, as many games do.

    Args:
      episode: A `Trajectory` of NumPy arrays `[T + 1, ...]`. Row T has the final observation; its
        reward is nobody's.
      share: Share of each reward that is kept back, in [0, 1].
    """
    reward = np.array(episode.reward)
    late = share * reward[:-1]
    reward[:-1] -= late
    reward[-2] += late.sum()
    return episode._replace(reward=reward)
