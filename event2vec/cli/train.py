"""Train a classifier: recordings in, a run folder with the network, its curves and its metrics out.

    event2vec train folder --data my_recordings/       one sub-folder for each class, any camera format
    event2vec train nmnist --data N-MNIST/ --training.epochs 20
    event2vec train --resume runs/my_recordings        go on after a stop or a crash

Every setting of the recipe can be given as an option; --print-config shows them all with their values. The same
command trains on several GPUs (--trainer.devices) and, under torchrun or SLURM, on several nodes.
"""

from jsonargparse import Namespace

from event2vec.cli.recipes import add_recipe_arguments, run_task

add_arguments = add_recipe_arguments


def run(options: Namespace) -> None:
    run_task(options, "train")
