"""`whence features export`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from whence.cli.options import Invocation, StoreOptions
from whence.cli.output import print_json
from whence.errors import UserError
from whence.experiments.options import positional

EXPORT = """Write a trained autoencoder as SAELens keeps its own: cfg.json and sae_weights.safetensors.

  whence features export 3f2a --out my-sae
  whence features export 3f2a --out my-sae --hook blocks.14.hook_resid_post

SAELens then loads it with SAE.load_from_disk("my-sae"). It takes states as they are: centre and scale are folded into
the weights. SAELens knows no positions, so that an autoencoder which does is refused, with the part that stands in the
way; 'whence features measure my-sae' reads it back."""


class Exporting(StoreOptions):
    """Where it goes."""

    run: str = Field(description="first digits of a run's id", json_schema_extra=positional("RUN"))
    out: str = Field(default="", description="the folder to write; files of an earlier export are replaced")
    hook: str = Field(default="", description="SAELens' name of the place in the model; none: left open")


def export(invocation: Invocation) -> int:
    options = invocation.options(Exporting)
    if not options.out:
        raise UserError("out: no folder is named. Allowed: --out DIR.", field="out")
    from whence.features.sae import saelens
    from whence.features.stored import load
    from whence.store.runs import Store

    model, run = load(Store(options.store), options.run)
    config = saelens.export(model, run, Path(options.out), options.hook)
    if options.json_:
        print_json({"run": run.id, "path": options.out, **config.document()})
    else:
        print(f"{run.id}  {config.architecture}, {config.d_sae} features of {config.d_in} numbers  {options.out}")
    return 0
