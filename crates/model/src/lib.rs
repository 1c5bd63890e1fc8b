//! What a model is: the decoder specification, the families as data, and the one forward pass
