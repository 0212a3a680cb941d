"""Train without labels: the network learns to tell the place and polarity of hidden events (App. A.5).

    event2vec pretrain dvs_lip_pretrain --data DVS-Lip/
    event2vec train dvs_lip --data DVS-Lip/ --init runs/dvs_lip_pretrain

Recipes and settings are those of `event2vec train`; model.pooling must be off.
"""

from jsonargparse import Namespace

from event2vec.cli.recipes import add_recipe_arguments, run_task

add_arguments = add_recipe_arguments


def run(options: Namespace) -> None:
    run_task(options, "pretrain")
