"""Data sets that public example scripts fetch, made up: same names, shapes and kinds of values."""

import io
import tempfile
import zipfile
from pathlib import Path

import numpy as np

_WORDS = np.array([f"word{number}" for number in range(20_000)])
_REVIEW_WORDS = 230  # The mean of the film reviews.
_REVIEWS = 25_000


def images(count, shape, labels, classes):
    rng = np.random.default_rng(count)
    drawn = rng.integers(0, 256, (count, *shape), np.uint8)
    return drawn, rng.integers(0, classes, (count, *labels), np.uint8)


def word_lists(words):
    """Return reviews as lists of numbers, and whether they praise."""
    rng = np.random.default_rng(words)
    reviews = np.empty(_REVIEWS, object)
    for number, length in enumerate(rng.poisson(_REVIEW_WORDS, _REVIEWS)):
        reviews[number] = rng.integers(1, words, length).tolist()
    return reviews, rng.integers(0, 2, _REVIEWS)


def texts(count):
    rng = np.random.default_rng(count)
    return [" ".join(rng.choice(_WORDS, length)) for length in rng.poisson(_REVIEW_WORDS, count)]


def lay_texts(directory):
    """Write the film reviews as files into a folder, unless it is there."""
    folder = Path(directory)
    if folder.exists() or folder.parent.name != "aclImdb":
        return
    for name in ("neg", "pos"):
        (folder / name).mkdir(parents=True)
    for number, text in enumerate(texts(_REVIEWS)):
        (folder / ("neg", "pos")[number % 2] / f"{number}_5.txt").write_text(text)


def fetched(address):
    """Return a file with what is made up for an address.

    Raises:
        OSError: nothing is.
    """
    name = address.rpartition("/")[2]
    if name not in _MADE:
        raise OSError(f"not downloaded: {address}")
    path = Path(tempfile.mkdtemp()) / name
    path.write_bytes(_MADE[name]())
    return path


def _zipped(name, content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return file.getvalue()


def x_rays(address):
    """Return a data set of pictures as JPEG, or of their paths, as an address names them."""
    import tensorflow as tf

    count = 5_232 if "/train/" in address else 624
    if "paths" in address:
        return tf.data.Dataset.from_tensor_slices(["NORMAL/1.jpeg", "PNEUMONIA/2.jpeg"]).repeat(
            count // 2
        )
    picture = tf.cast(tf.random.uniform((970, 1_330, 1), 0, 256, tf.int32), tf.uint8)
    return tf.data.Dataset.from_tensors(tf.io.encode_jpeg(picture)).repeat(count)


def _table(rows, columns):
    """Return a table of columns as "name values".

    Values are whole numbers up to one, so many words (``*9``), or some of those with bars between.
    """
    import pandas as pd

    rng = np.random.default_rng(rows)
    found = {}
    for name, values in (column.strip().rsplit(" ", 1) for column in columns.split(",")):
        words = values.replace("_", " ").split("|")
        if values.startswith("*"):
            words = [f" kind{number}" for number in range(int(values[1:]))]
        is_number = values.isdigit()
        found[name] = rng.integers(0, int(values), rows) if is_number else rng.choice(words, rows)
    return pd.DataFrame(found)


def _csv(table, **how):
    return table.to_csv(index=False, **how).encode()


def _adult(rows, first, end):
    columns = f"""age 90, workclass *9, fnlwgt 1000000, education *16, education_num 16,
        marital_status *7, occupation *15, relationship *6, race *5, gender *2, capital_gain 100000,
        capital_loss 4000, hours_per_week 99, native_country *42,
        income_bracket _<=50K{end}|_>50K{end}"""
    return first.encode() + _csv(_table(rows, columns), header=False)


def _heart():
    columns = """age 80, sex 2, cp 5, trestbps 200, chol 560, fbs 2, restecg 3, thalach 200,
        exang 2, oldpeak 6, slope 4, ca 4, thal fixed|normal|reversible, target 2"""
    return _csv(_table(303, columns))


def _bank():
    columns = """age 90, job *12, marital *4, education *8, default *3, housing *3, loan *3,
        contact *2, month *10, day_of_week *5, duration 3000, campaign 35, pdays 1000, previous 7,
        poutcome *3, emp.var.rate 0.5|1.5|2.5, cons.price.idx 0.5|1.5|2.5,
        cons.conf.idx 0.5|1.5|2.5, euribor3m 0.5|1.5|2.5, nr.employed 0.5|1.5|2.5, y no|yes"""
    inner = _zipped("bank-additional/bank-additional.csv", _csv(_table(4_119, columns), sep=";"))
    return _zipped("bank-additional.zip", inner)


def _jena():
    import pandas as pd

    names = """p (mbar), T (degC), Tpot (K), Tdew (degC), rh (%), VPmax (mbar), VPact (mbar),
        VPdef (mbar), sh (g/kg), H2OC (mmol/mol), rho (g/m**3), wv (m/s), max. wv (m/s), wd (deg)"""
    rows = 420_551
    table = _table(rows, names.replace(",", " 100,") + " 100")
    times = pd.date_range("2009-01-01 00:10", periods=rows, freq="10min")
    table.insert(0, "Date Time", times.strftime("%d.%m.%Y %H:%M:%S"))
    return _zipped("jena_climate_2009_2016.csv", _csv(table))


_MADE = {
    "LJSpeech-1.1.tar.bz2": bytes,  # Its script fails before it is read.
    "adult.data": lambda: _adult(32_561, "", ""),
    "adult.test": lambda: _adult(16_281, "|1x3 Cross validator\n", "."),
    "bank+marketing.zip": _bank,
    "heart.csv": _heart,
    "jena_climate_2009_2016.csv.zip": _jena,
}
