from image_classifiers import trained

model, dataset = trained("EfficientNetB0")
