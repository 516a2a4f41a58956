"""Edits that a check has to catch, and edits that it has to let pass, on four models.

Each model of ``models/`` is placed by hand with `tf.device`. An edit replaces pieces of its text,
each of which must be there; a further one is one more line. Harmful edits name the culprit: a part
of what the check has to say.

The edits were written before what they test; what it taught about them is said beside them.
"""

from typing import NamedTuple


class Edit(NamedTuple):
    """Replacements in the text of a model; ``culprit`` is what must be named, if anything."""

    name: str
    model: str
    pairs: tuple[tuple[str, str], ...]
    culprit: str = ""

    def __str__(self):
        return f"{self.name}-{self.model}"

    def applied(self, text):
        """Return the edited text."""
        for old, new in self.pairs:
            assert old in text, f"{self}: nothing to edit: {old!r}"
            text = text.replace(old, new)
        return text


CONV, RANK, CHAIN, WORDS = "deepconn", "ranker", "deep_mnist", "transformer"
# A layer of each that stands on the second device.
ON_SECOND = ((CONV, "item_dense"), (RANK, "item_2"), (CHAIN, "conv_5"), (WORDS, "decoder_wide"))
TAPE = (
    ("    loss = loss_of(", "    with tf.GradientTape() as tape:\n        loss = loss_of("),
    ("tf.gradients(loss, variables)", "tape.gradient(loss, variables)"),
)
PENALTY = "1e-4 * tf.add_n([tf.nn.l2_loss(variable) for variable in variables])"


def hashed(name, size):
    """Return a statement whose ops have no GPU kernel."""
    return f"{name} = tf.strings.to_hash_bucket_fast(tf.strings.as_string({name}), {size})"


# fmt: off
HARMFUL = (
    Edit("layer-moved", CONV, ((
        '        with tf.name_scope("item_dense"):',
        '        with tf.device(FIRST), tf.name_scope("item_dense"):'),), "item_dense"),
    Edit("layer-moved", RANK, ((
        "        surroundings =", "    with tf.device(FIRST):\n        surroundings ="),), "context_1"),
    Edit("layer-moved", CHAIN, ((
        "        upper = conv_5(conv_4(lower))",
        "        with tf.device(FIRST):\n            lower = conv_4(lower)\n        upper = conv_5(lower)"),),
        "conv_4"),
    Edit("layer-moved", WORDS, ((
        "        decoded = decoded + decoder_narrow(decoder_wide(decoded))",
        "        with tf.device(FIRST):\n            wide = decoder_wide(decoded)\n"
        "        decoded = decoded + decoder_narrow(wide)"),), "decoder_wide"),

    Edit("bigger-tensor-across", CONV, (("FILTERS, UNITS = 50", "FILTERS, UNITS = 64"),), "words/Gather"),
    Edit("bigger-tensor-across", RANK, (("(512, 256), (64, 32)", "(512, 1_024), (64, 32)"),), "item_2"),
    Edit("bigger-tensor-across", CHAIN, (
        ('conv("conv_2"), conv("conv_3")',
         'conv("conv_2"), tf.keras.layers.Conv2D(\n        64, 3, padding="same", name="conv_3")'),
        ("conv_4.build([BATCH, 28, 28, FILTERS])", "conv_4.build([BATCH, 28, 28, 64])")), "conv_3"),
    Edit("bigger-tensor-across", WORDS, ((
        "encoder_narrow(encoder_wide(encoded))",
        "encoder_narrow(encoder_wide(encoded))\n"
        "        encoded = tf.concat([encoded, source_embedding(source)], axis=1)"),), "concat"),

    *(Edit("tape-for-gradients", model, TAPE, culprit) for model, culprit in ON_SECOND),
    # The cause was said to be that gradients have no device.
    Edit("tape-in-a-scope", RANK, (*TAPE, (
        "    gradients = tape.gradient(loss, variables)",
        "    with tf.device(FIRST):\n        gradients = tape.gradient(loss, variables)"),), "item_2"),

    Edit("cpu-only-op-pinned", CONV, ((
        "            user_vectors =",
        f"            {hashed('user_words', 'VOCABULARY')}\n            user_vectors ="),), "AsString"),
    Edit("cpu-only-op-pinned", RANK, ((
        "        item =", f"        {hashed('video', 'VIDEOS')}\n        item ="),), "AsString"),
    Edit("cpu-only-op-pinned", CHAIN, ((
        "        logits =",
        "        digits = tf.strings.to_number(tf.strings.as_string(digits), tf.int32)\n        logits ="),),
        "AsString"),
    Edit("cpu-only-op-pinned", WORDS, ((
        "        decoded = target", f"        {hashed('target', 'VOCABULARY')}\n        decoded = target"),),
        "AsString"),

    Edit("batch-doubled", CONV, (("= 2_048,", "= 4_096,"),), "memory"),
    Edit("batch-doubled", RANK, (("= 8_192,", "= 16_384,"),), "memory"),
    Edit("batch-doubled", CHAIN, (("= 1_024,", "= 2_048,"),), "memory"),
    Edit("batch-doubled", WORDS, (("= 256,", "= 512,"),), "memory"),

    Edit("variable-elsewhere", CONV, ((
        "with tf.device(SECOND):\n    item_filter = weight(\"item_conv/filter\", 3, EMBEDDING, FILTERS)\n",
        "    item_filter = weight(\"item_conv/filter\", 3, EMBEDDING, FILTERS)\nwith tf.device(SECOND):\n"),),
        "item_conv/filter"),
    Edit("variable-elsewhere", RANK, ((
        "    build(item_tower,", "    with tf.device(FIRST):\n        build(item_tower,"),), "item_1"),
    Edit("variable-elsewhere", CHAIN, ((
        "    digit.build(", "    with tf.device(FIRST):\n        digit.build("),), "digit"),
    Edit("variable-elsewhere", WORDS, ((
        "    words = dense(", "    with tf.device(FIRST):\n        words = dense("),), "words"),

    Edit("reads-the-other-side", CONV, ((
        "            item = dense(item, item_kernel)",
        "            item = dense(item, item_kernel) * tf.sigmoid(user)"),), "user_dense"),
    Edit("reads-the-other-side", RANK, ((
        "        surroundings =", "        item = item * tf.sigmoid(user)\n        surroundings ="),), "user_3"),
    Edit("reads-the-other-side", CHAIN, (
        ("lower = conv_3(conv_2(conv_1(images)))",
         "first = conv_1(images)\n        lower = conv_3(conv_2(first))"),
        ("conv_5(conv_4(lower))", "conv_5(conv_4(lower)) + first")), "conv_1"),
    Edit("reads-the-other-side", WORDS, ((
        "decoder_attention(decoded, decoded)",
        "decoder_attention(decoded, decoded)\n"
        "        decoded = decoded + cross_attention(decoded, source_embedding(source))"),),
        "source_embedding"),

    Edit("double-precision-across", CONV, (
        ("item_vectors = tf.gather(table, item_words)",
         "item_vectors = tf.cast(tf.gather(table, item_words), tf.float64)"),
        ("conv(item_vectors,", "conv(tf.cast(item_vectors, tf.float32),")), "Cast"),
    Edit("double-precision-across", RANK, (
        ("        surroundings =", "        item = tf.cast(item, tf.float64)\n        surroundings ="),
        ("tf.concat([user, item,", "tf.concat([user, tf.cast(item, tf.float32),")), "Cast"),
    Edit("double-precision-across", CHAIN, (
        ("lower = conv_3(conv_2(conv_1(images)))", "lower = tf.cast(conv_3(conv_2(conv_1(images))), tf.float64)"),
        ("conv_4(lower)", "conv_4(tf.cast(lower, tf.float32))")), "Cast"),
    Edit("double-precision-across", WORDS, (
        ("encoder_narrow(encoder_wide(encoded))",
         "encoder_narrow(encoder_wide(encoded))\n        encoded = tf.cast(encoded, tf.float64)"),
        ("cross_attention(decoded, encoded)", "cross_attention(decoded, tf.cast(encoded, tf.float32))")), "Cast"),

    Edit("heavier-layer", CONV, (('"item_conv/filter", 3,', '"item_conv/filter", 27,'),
        ('"VALID"', '"SAME"'), ("(WORDS - 2)", "WORDS")), "item_conv"),
    Edit("heavier-layer", RANK, (("= (1_024, 512, 256)", "= (2_048, 512, 256)"),), "user_1"),
    Edit("heavier-layer", CHAIN, ((
        'conv("conv_2")', 'tf.keras.layers.Conv2D(\n        FILTERS, 5, padding="same", name="conv_2")'),), "conv_2"),
    Edit("heavier-layer", WORDS, (
        ('"decoder_wide", WIDTH, 4 * WIDTH', '"decoder_wide", WIDTH, 8 * WIDTH'),
        ('"decoder_narrow", 4 * WIDTH', '"decoder_narrow", 8 * WIDTH')), "decoder_wide"),

    # Written down as harmless at first, until the check told: TensorFlow computes the gradients of
    # a tf.function in another one, whose ops have no device, as with a tape.
    *(Edit("scopes-in-a-tf-function", model, (("def loss_of(", "@tf.function\ndef loss_of("),), culprit)
      for model, culprit in ON_SECOND),

    # Written with the explanations that a failed check gives, to have one for each.
    Edit("scope-removed", RANK, (
        ("    with tf.device(SECOND):\n        item =", "    item ="),
        ("        surroundings =", "    surroundings =")), "item_2"),
    Edit("all-scopes-removed", RANK, (
        ("with tf.device(SECOND):\n    video", "if True:\n    video"),
        ("with tf.device(FIRST):\n    watched", "if True:\n    watched"),
        ("    with tf.device(SECOND):\n        item =", "    item ="),
        ("        surroundings =", "    surroundings ="),
        ("    with tf.device(FIRST):\n        average =", "    average ="),
        ("        user = through", "    user = through"),
        ("with tf.device(FIRST), ", "with ")), "item_2"),

    Edit("penalty-on-all-weights", CONV, ((
        "** 2)", f"** 2) + {PENALTY}"),), "item_dense"),
    Edit("penalty-on-all-weights", RANK, ((
        "(clicks, logits))", f"(clicks, logits)) + {PENALTY}"),), "item_2"),
    Edit("penalty-on-all-weights", CHAIN, ((
        "tf.reduce_mean(losses)", f"tf.reduce_mean(losses) + {PENALTY}"),), "L2Loss"),
    Edit("penalty-on-all-weights", WORDS, ((
        "tf.reduce_mean(losses)", f"tf.reduce_mean(losses) + {PENALTY}"),), "L2Loss"),
)

HARMLESS = (
    *(Edit("comments", model, (
        ("import tensorflow as tf", "# Placed by hand.\nimport tensorflow as tf  # 2.21"),
        ("def loss_of(", "# What is trained.\n\n\ndef loss_of("))) for model in (CONV, RANK, CHAIN, WORDS)),
    *(Edit("another-seed", model, (("SEED = 20", "SEED = 30"),)) for model in (CONV, RANK, CHAIN, WORDS)),
    *(Edit("another-learning-rate", model, (("RATE = 1", "RATE = 3") if model in (CONV, WORDS) else
        ("RATE = 0.01", "RATE = 0.03"),)) for model in (CONV, RANK, CHAIN, WORDS)),
    *(Edit("nothing-that-runs", model, (
        ("    gradients =", '    print("traced")\n    tf.reduce_mean([tf.reduce_sum(v) for v in variables])\n    gradients ='),
        ("def loss_of(", "def unused(x):\n    return tf.matmul(x, x)\n\n\ndef loss_of("))) for model in (CONV, RANK, CHAIN, WORDS)),
    *(Edit("other-identifiers", model, (
        ("loss_of", "objective"), ("gradients =", "slopes ="), ("zip(gradients", "zip(slopes"),
        ("variables", "weights_and_biases"), (".trainable_weights_and_biases", ".trainable_variables")) if model != CONV else (
        ("loss_of", "objective"), ("gradients =", "slopes ="), ("zip(gradients", "zip(slopes"),
        ("variables", "weights_and_biases"))) for model in (CONV, RANK, CHAIN, WORDS)),

    Edit("layers-renamed", CONV, (('"user_', '"reader_'), ('"item_', '"product_'), ('"words', '"tokens'), ('"rating"', '"score"'))),
    Edit("layers-renamed", RANK, (
        ('tower("user"', 'tower("visitor"'), ('tower("item"', 'tower("video"'), ('name="rank"', 'name="join"'),
        ('name="video_embedding"', 'name="film_embedding"'), ('"loss"', '"cost"'))),
    Edit("layers-renamed", CHAIN, (('conv("conv_', 'conv("block_'), ('name="digit"', 'name="class"'), ('"loss"', '"cost"'))),
    Edit("layers-renamed", WORDS, (('"encoder_', '"reader_'), ('"decoder_', '"writer_'), ('"words"', '"vocabulary"'))),

    Edit("reordered", CONV, (
        ('            user_vectors = tf.gather(table, user_words)\n            item_vectors = tf.gather(table, item_words)\n',
         '            item_vectors = tf.gather(table, item_words)\n            user_vectors = tf.gather(table, user_words)\n'),
        ("[table, user_filter, user_kernel, item_filter, item_kernel]", "[item_kernel, item_filter, user_kernel, table, user_filter]"),
        ('        with tf.name_scope("user_conv"):\n            user = conv(user_vectors, user_filter)\n'
         '        with tf.name_scope("user_dense"):\n            user = dense(user, user_kernel)\n', ""),
        ('    with tf.device(FIRST), tf.name_scope("rating"):',
         '    with tf.device(FIRST):\n        with tf.name_scope("user_conv"):\n            user = conv(user_vectors, user_filter)\n'
         '        with tf.name_scope("user_dense"):\n            user = dense(user, user_kernel)\n'
         '    with tf.device(FIRST), tf.name_scope("rating"):'))),
    Edit("reordered", RANK, (
        ("        surroundings = through(context_tower, context)\n", ""),
        ("        item = through(", "        surroundings = through(context_tower, context)\n        item = through("),
        ("layers = [watched_embedding, *user_tower, rank, chance]", "layers = [chance, watched_embedding, rank, *user_tower]"),
        ("[video_embedding, *item_tower, *context_tower]", "[*context_tower, video_embedding, *item_tower]"),
        ("[user, item, surroundings]", "[surroundings, item, user]"))),
    Edit("reordered", CHAIN, (
        ("    conv_2.build([BATCH, 28, 28, FILTERS])\n    conv_3.build([BATCH, 28, 28, FILTERS])\n",
         "    conv_3.build([BATCH, 28, 28, FILTERS])\n    conv_2.build([BATCH, 28, 28, FILTERS])\n"),
        ("[conv_1, conv_2, conv_3, conv_4, conv_5, digit]", "[digit, conv_5, conv_1, conv_4, conv_3, conv_2]"))),
    Edit("reordered", WORDS, (
        ("    with tf.device(SECOND):\n        decoded = target_embedding(target)\n        decoded = decoded + decoder_attention(decoded, decoded)\n",
         "    with tf.device(SECOND):\n"),
        ("    with tf.device(FIRST):\n        encoded =",
         "    with tf.device(SECOND):\n        decoded = target_embedding(target)\n        decoded = decoder_attention(decoded, decoded) + decoded\n"
         "    with tf.device(FIRST):\n        encoded ="),
        ("[target_embedding, decoder_attention, cross_attention]", "[cross_attention, decoder_attention, target_embedding]"))),

    Edit("into-a-function", CONV, (
        ("        return tf.reduce_mean((rating - ratings) ** 2)\n", "        return mean_error(rating, ratings)\n"),
        ("def loss_of(", "def mean_error(guess, truth):\n    return tf.reduce_mean((guess - truth) ** 2)\n\n\ndef loss_of("))),
    Edit("into-a-function", RANK, (
        ("        average = tf.reduce_mean(watched_embedding(watched), axis=1)\n        user = through(user_tower, tf.concat([average, profile], axis=1))\n",
         "        user = of_user(watched, profile)\n"),
        ("def loss_of(", "def of_user(watched, profile):\n    average = tf.reduce_mean(watched_embedding(watched), axis=1)\n"
         "    return through(user_tower, tf.concat([average, profile], axis=1))\n\n\ndef loss_of("))),
    Edit("into-a-function", CHAIN, (
        ("        lower = conv_3(conv_2(conv_1(images)))\n", "        lower = half(images, conv_1, conv_2, conv_3)\n"),
        ("        upper = conv_5(conv_4(lower))\n", "        upper = half(lower, conv_4, conv_5)\n"),
        ("def loss_of(", "def half(x, *layers):\n    for layer in layers:\n        x = layer(x)\n    return x\n\n\ndef loss_of("))),
    Edit("into-a-function", WORDS, (
        ("        encoded = encoded + encoder_attention(encoded, encoded)\n        encoded = encoded + encoder_narrow(encoder_wide(encoded))\n",
         "        encoded = block(encoded, encoder_attention, encoder_wide, encoder_narrow)\n"),
        ("def loss_of(", "def block(x, attention, wide, narrow):\n    x = x + attention(x, x)\n    return x + narrow(wide(x))\n\n\ndef loss_of("))),

    Edit("into-a-tf-function", CONV, (("def conv(", "@tf.function\ndef conv("),)),
    Edit("into-a-tf-function", RANK, (("def through(", "@tf.function\ndef through("),)),
    Edit("into-a-tf-function", CHAIN, (
        ("        lower = conv_3(conv_2(conv_1(images)))\n", "        lower = lower_half(images)\n"),
        ("def loss_of(", "@tf.function\ndef lower_half(x):\n    return conv_3(conv_2(conv_1(x)))\n\n\ndef loss_of("))),
    Edit("into-a-tf-function", WORDS, (
        ("        encoded = encoded + encoder_narrow(encoder_wide(encoded))\n", "        encoded = forwarded(encoded)\n"),
        ("def loss_of(", "@tf.function\ndef forwarded(x):\n    return x + encoder_narrow(encoder_wide(x))\n\n\ndef loss_of("))),

    Edit("in-other-words", CONV, (("tf.nn.relu(tf.matmul(tf.reshape(features, [BATCH, -1]), kernel))",
        "tf.maximum(tf.reshape(features, [BATCH, -1]) @ kernel, 0.0)"), ("(rating - ratings) ** 2", "tf.square(ratings - rating)"))),
    Edit("in-other-words", RANK, (("tf.reduce_mean(watched_embedding(watched), axis=1)",
        "tf.reduce_sum(watched_embedding(watched), axis=1) / WATCHED"),)),
    Edit("in-other-words", CHAIN, (('conv("conv_2")',
        'tf.keras.layers.Conv2D(FILTERS, (3, 3), padding="same", activation=tf.nn.relu, name="conv_2")'),
        ("tf.reduce_mean(losses)", "tf.reduce_sum(losses) / BATCH"))),
    Edit("in-other-words", WORDS, (("encoded = encoded + encoder_attention(encoded, encoded)",
        "encoded = tf.add_n([encoder_attention(encoded, encoded), encoded])"), ("tf.reduce_mean(losses)", "tf.reduce_sum(losses) / (BATCH * WORDS)"))),
)
# fmt: on
