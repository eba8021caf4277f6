"""The parts that an autoencoder is composed of: every folder a registry, every file a part."""

from __future__ import annotations

from typing import Annotated

from whence.features.data.base import Data
from whence.features.sae.centering.base import Centre
from whence.features.sae.encoders.base import Encoder
from whence.features.sae.inits.base import Start
from whence.features.sae.losses.base import Loss
from whence.features.sae.masks.base import Mask
from whence.features.sae.norms.base import Norm
from whence.features.sae.schedules.base import Schedule
from whence.features.sae.sparsity.base import Sparsity
from whence.registry import Choice, Registry

DATA: Registry[Data] = Registry("whence.features.data", Data)
CENTRES: Registry[Centre] = Registry("whence.features.sae.centering", Centre)
ENCODERS: Registry[Encoder] = Registry("whence.features.sae.encoders", Encoder)
NORMS: Registry[Norm] = Registry("whence.features.sae.norms", Norm)
MASKS: Registry[Mask] = Registry("whence.features.sae.masks", Mask)
SPARSITY: Registry[Sparsity] = Registry("whence.features.sae.sparsity", Sparsity)
LOSSES: Registry[Loss] = Registry("whence.features.sae.losses", Loss)
SCHEDULES: Registry[Schedule] = Registry("whence.features.sae.schedules", Schedule)
STARTS: Registry[Start] = Registry("whence.features.sae.inits", Start)

DataChoice = Annotated[Choice[Data], DATA]
CentreChoice = Annotated[Choice[Centre], CENTRES]
EncoderChoice = Annotated[Choice[Encoder], ENCODERS]
NormChoice = Annotated[Choice[Norm], NORMS]
MaskChoice = Annotated[Choice[Mask], MASKS]
SparsityChoice = Annotated[Choice[Sparsity], SPARSITY]
LossChoice = Annotated[Choice[Loss], LOSSES]
ScheduleChoice = Annotated[Choice[Schedule], SCHEDULES]
StartChoice = Annotated[Choice[Start], STARTS]
