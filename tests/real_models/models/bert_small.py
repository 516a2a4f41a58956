from bert_classifier import Configuration, fine_tuned

model, dataset = fine_tuned(
    Configuration(layers=2, width=32, heads=4, vocabulary=100, positions=24, tokens=16)
)
