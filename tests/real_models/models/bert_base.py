from bert_classifier import Configuration, fine_tuned

model, dataset = fine_tuned(Configuration())
