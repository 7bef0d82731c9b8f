//! What the tests of prompts share: the Test model, if there is one, and templates of the known shapes.
