"""Models that nobody tuned for: `random_models.py SEED` writes a model file drawn at random.

A file is what a user could have written: towers, experts or one chain of dense, convolutional,
recurrent or embedding layers, with dropout and batch norm or without; as a Keras model, as a
`tf.function` around one or as one over variables; that infers, or trains with an optimizer of
Keras or by hand. A step takes from 0.5 to 200 ms on one core. Equal seeds give equal text. What a
seed draws changes with this file and the folder `random_model_parts`: with a seed belongs the
commit.

Left out: batches of different sizes, devices in the model, mixed precision, attention.
"""

import argparse
from pathlib import Path

from random_model_parts.draw import ALL_FEATURES, random_model


def main():
    """Write the file of a seed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("seed", type=int)
    parser.add_argument("-o", "--output", type=Path, help="the file; without it, standard output")
    words = {"nargs": "*", "default": (), "metavar": "FEATURE"}
    parser.add_argument("--needs", help=f"one of {', '.join(sorted(ALL_FEATURES))}", **words)
    parser.add_argument("--without", help="the same", **words)
    options = parser.parse_args()
    text = random_model(options.seed, needs=options.needs, without=options.without).text
    if options.output:
        options.output.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
