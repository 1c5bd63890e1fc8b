//! Text in and out: tokenizers, incremental detokenisation, chat templates
