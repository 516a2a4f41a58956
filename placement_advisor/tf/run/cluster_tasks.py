"""Tasks of a distributed program as TensorFlow's cluster resolvers read them from the environment.

Runs in a child of its own: a resolver of Slurm reads the environment of its process, which is
changed here. Left out: parameter servers and evaluators, which compute no steps.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import tensorflow as tf

from placement_advisor.errors import AdvisorError

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMPUTING = ("chief", "master", "worker")
# More than any node has tasks: the resolver deals out GPUs, and lists no more tasks than those.
_GPUS_PER_NODE = 1 << 20


def slurm_tasks(variables: Mapping[str, str]) -> list[str]:
    """Return ``host:port`` of each task of a step by its SLURM variables; ports mean nothing.

    Raises:
        AdvisorError: the resolver cannot read them.
    """
    os.environ.update(variables)
    try:
        resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
            gpus_per_node=_GPUS_PER_NODE, gpus_per_task=1, auto_set_gpu=False
        )
        return _tasks(resolver)
    except (RuntimeError, ValueError) as error:
        raise AdvisorError(f"SLURM variables: {error}") from None


def tf_config_tasks(text: str) -> list[str]:
    """Return ``host:port`` of each task that computes, by the content of TF_CONFIG.

    Raises:
        AdvisorError: the resolver cannot read it.
    """
    os.environ["TF_CONFIG"] = text
    try:
        return _tasks(tf.distribute.cluster_resolver.TFConfigClusterResolver())
    except (AttributeError, TypeError, ValueError) as error:
        raise AdvisorError(f"TF_CONFIG: {error}") from None


def _tasks(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> list[str]:
    spec = resolver.cluster_spec()
    return [
        str(task) for job in _COMPUTING if job in spec.jobs for task in spec.job_tasks(job) if task
    ]
