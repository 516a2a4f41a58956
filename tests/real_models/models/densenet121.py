from image_classifiers import trained

model, dataset = trained("DenseNet121")
