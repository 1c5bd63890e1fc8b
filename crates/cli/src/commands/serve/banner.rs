//! What a person sees when the server is ready: where it is, and what to try.

use ropeway_server::App;

/// The whole text.
pub fn ready(app: &App, urls: &[String], access: &str) -> String {
    let mut names: Vec<_> = app.models.all().iter().map(|model| model.name.clone()).collect();
    let embedding = app.embeddings.all().into_iter().map(|model| model.name.clone());
    let embedding: Vec<_> = embedding.filter(|name| !names.contains(name)).collect();
    names.extend(embedding);
    let first = names.first().map_or("", String::as_str);
    let url = urls.first().map_or("", String::as_str);
    let aliases = aliases(app, first);
    let key = if app.guard.keys.is_empty() { "" } else { " -H 'authorization: Bearer KEY'" };
    format!(
        "\
ropeway serves {names} on {urls}

  try:       curl {url}/v1/chat/completions -H 'content-type: application/json'{key} \\
               -d '{{\"model\": \"{first}\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello!\"}}]}}'
  OpenAI:    OPENAI_BASE_URL={url}/v1
  Anthropic: ANTHROPIC_BASE_URL={url}
  Ollama:    OLLAMA_HOST={url}
  names:     {aliases}
  access:    {access}
  all paths: {url}/docs      metrics: {url}/metrics      health: {url}/health",
        names = names.join(", "),
        urls = urls.join(", "),
    )
}

/// Which other names clients may use, or how they could.
fn aliases(app: &App, first: &str) -> String {
    let known: Vec<_> =
        app.models.aliases().iter().map(|alias| format!("{} is {}", alias.pattern, alias.model)).collect();
    if known.is_empty() {
        format!("for clients that insist on theirs: --alias 'gpt-*={first}', or --any-model")
    } else {
        known.join(", ")
    }
}
