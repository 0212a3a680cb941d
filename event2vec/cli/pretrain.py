"""Train without labels: the network learns to predict the position and polarity of hidden events (App. A.5).

    event2vec pretrain dvs_lip_pretrain --data DVS-Lip/
    event2vec train dvs_lip --data DVS-Lip/ --init runs/dvs_lip_pretrain

Recipes and settings are those of `event2vec train`; model.pooling must be off.
"""

from argparse import Namespace

from event2vec.cli.recipe_options import add_recipe_arguments, check_recipe_options

add_arguments = add_recipe_arguments


def check(options: Namespace) -> None:
    check_recipe_options(options, "pretrain")


def run(options: Namespace) -> None:
    from event2vec.cli.recipes import run_task

    run_task(options, "pretrain")
