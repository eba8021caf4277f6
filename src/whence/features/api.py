"""Features from Python: collect activations, load a trained autoencoder, compute the profiles of its features."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from whence.features.actions import run_collect, run_show
from whence.features.activations.collect import collect_from
from whence.features.activations.sources import of_module
from whence.features.activations.store import Collection
from whence.features.config import CollectConfig, ShowConfig
from whence.features.evals.profiles import FeatureProfiles
from whence.features.run import load_autoencoder
from whence.features.sae.autoencoder import Autoencoder
from whence.store.runs import Store


def load(run: str, *, store: str | Path | None = None) -> Autoencoder:
    """Load the sparse autoencoder of a features run.

    Args:
        run: id of a finished run, or its first digits.
        store: directory of runs; None: $WHENCE_STORE, else `whence-runs` in the working directory.

    Returns:
        The autoencoder in evaluation mode.

    Raises:
        whence.errors.UserError: if the run does not exist, has not finished, is damaged or is of another instrument.

    Example:
        >>> result = whence.compare("features", presets=["plain_topk"], seeds=1, training={"steps": 5})
        >>> sae = whence.features.load(result.run_ids[0])
        >>> activations, positions = torch.randn(10, sae.d_in), torch.arange(10)
        >>> codes = sae.encode(activations, positions)
        >>> codes.shape == (10, sae.d_sae)
        True
        >>> sae.decode(codes, positions).shape == activations.shape
        True
    """
    return load_autoencoder(Store(store), run)[0]


def profiles(run: str, *, store: str | Path | None = None) -> FeatureProfiles:
    """Compute where the features of a trained autoencoder are active, as `whence features show` does.

    The profiles are measured on held-out activations and stored: the second call reads them.

    Args:
        run: id of a finished run, or its first digits.
        store: directory of runs; None: $WHENCE_STORE, else `whence-runs` in the working directory.

    Returns:
        Mean activation by position, position selectivity and activating text of every feature. A notebook shows it as
        a heat map.

    Raises:
        whence.errors.UserError: if the run cannot be loaded, or its activations are missing.

    Example:
        >>> result = whence.compare("features", presets=["plain_topk"], seeds=1, training={"steps": 5})
        >>> profiles = whence.features.profiles(result.run_ids[0])
        >>> profiles.mask_off.shape == (len(profiles.positions), len(profiles.active))
        True
    """
    return run_show(ShowConfig(run=run), Store(store), lambda message: None).result


def collect(
    *, store: str | Path | None = None, on_progress: Callable[[str], None] = lambda message: None, **fields: Any
) -> Collection:
    """Collect activations of a pretrained model, as `whence features collect` does.

    Args:
        store: directory of runs; None: $WHENCE_STORE, else `whence-runs` in the working directory.
        on_progress: called with progress messages.
        fields: options of `whence features collect`: model, layer, tokens, context_size, text, batch_size, name, …

    Returns:
        The collection, with activations, token ids and positions. Pass `data=str(collection.path)` to
        `whence.compare("features", …)` to train on it.

    Raises:
        whence.errors.UserError: if the model or the text cannot be read, or a field is not valid.

    Example:
        >>> small = {"model": {"d_model": 16, "heads": 2}, "training": {"steps": 5}}
        >>> result = whence.compare("arena", tasks=["copy"], encodings=["learned"], seeds=1, **small)
        >>> collection = whence.features.collect(model=f"run:{result.run_ids[0]}", layer=1, tokens=2000)
        >>> collection.d_in
        16
    """
    place = Store(store)
    artifact = run_collect(CollectConfig.read(fields), place, on_progress)
    return Collection.open(place, artifact.result.name)


def collect_module(
    model: nn.Module,
    layer: str,
    ids: Tensor,
    d_in: int,
    *,
    name: str,
    call: Callable[[Tensor], Any] | None = None,
    store: str | Path | None = None,
) -> Collection:
    """Collect activations of any module of your own model.

    Args:
        model: the model, in the mode that its activations should be collected in.
        layer: name of the module in `model.named_modules()`. Its output, or the first tensor of it, is (batch, length,
            d_in).
        ids: (sequences, context_size) token ids; the last tenth of the sequences is held out.
        d_in: channels of the activations.
        name: name of the collection.
        call: called with some rows of `ids` in place of `model(ids)`, where the model takes other arguments.
        store: directory of runs; None: $WHENCE_STORE, else `whence-runs` in the working directory.

    Returns:
        The collection. Pass `data=str(collection.path)` to `whence.compare("features", …)`.

    Raises:
        whence.errors.UserError: if there is no such module, or another collection has that name.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.Linear(16, 16), torch.nn.ReLU())
        >>> ids = torch.randint(50, (40, 12))
        >>> collection = whence.features.collect_module(model, "2", ids, d_in=16, name="mine")
        >>> collection.activations(collection.places("train")).shape  # the first position is left out
        torch.Size([396, 16])
    """
    return collect_from(of_module(model, layer, ids, d_in, call), Store(store), name)
