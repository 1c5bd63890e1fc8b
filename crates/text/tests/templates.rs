//! Chat templates against what Python's jinja2, set up as transformers does it, writes.

mod common;

use common::{fixture, golden, smollm2};
use ropeway_text::{ChatRequest, ChatTemplate, TemplateTokens, TextError};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

fn request(conversation: &Value) -> ChatRequest<'_> {
    let mut request = ChatRequest::new(conversation["messages"].as_array().unwrap());
    request.tools = conversation.get("tools").map(|tools| tools.as_array().unwrap().as_slice());
    request.add_generation_prompt = conversation.get("add_generation_prompt") != Some(&json!(false));
    if let Some(variables) = conversation.get("variables") {
        request.variables.clone_from(variables.as_object().unwrap());
    }
    // 2026-11-15, a Sunday, 09:30 UTC: the recording's `strftime_now`.
    request.now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_794_735_000);
    request
}

fn tokens() -> TemplateTokens {
    TemplateTokens { bos: Some("<s>".to_owned()), eos: Some("</s>".to_owned()) }
}

/// What differs from the recording beside a template, one line for each conversation.
fn differences(path: &Path) -> Vec<String> {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let recorded: Value = serde_json::from_str(&read(&path.with_extension("json"))).unwrap();
    let template = match ChatTemplate::new(&read(path), tokens()) {
        Ok(template) => template,
        Err(error) => return vec![format!("{}: {error}", path.display())],
    };
    let conversations = fixture("conversations.json");
    let mut differences = Vec::new();
    for (name, expected) in recorded.as_object().unwrap() {
        let rendered = template.render(&request(&conversations[name]));
        let same = match (&rendered, expected.get("text"), expected.get("refused")) {
            (Ok(text), Some(expected), _) => text == expected,
            (Err(TextError::Refused(message)), _, Some(expected)) => message == expected,
            // Where Python fails, such as on iterating over nothing, being lenient is fine.
            (_, None, None) => true,
            _ => false,
        };
        if !same {
            differences.push(format!("{}, {name}: {rendered:?} instead of {expected}", path.display()));
        }
    }
    differences
}

fn templates(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut templates: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "jinja")).collect();
    templates.sort();
    templates
}

#[test]
fn templates_write_what_jinja2_writes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/templates");
    let differences: Vec<String> = templates(&folder).iter().flat_map(|path| differences(path)).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn templates_of_real_models_write_what_jinja2_writes() {
    let Some(folder) = std::env::var_os("ROPEWAY_TEST_TEMPLATES") else {
        eprintln!("skipped: ROPEWAY_TEST_TEMPLATES names no folder recorded with tests/fixtures/make.py");
        return;
    };
    let differences: Vec<String> =
        templates(Path::new(&folder)).iter().flat_map(|path| differences(path)).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn the_default_model_renders_the_reference_prompts() {
    let Some(checkpoint) = smollm2() else { return };
    let template = ChatTemplate::from_checkpoint(&checkpoint).unwrap().unwrap();
    for item in golden("smollm2_greedy.json")["items"].as_array().unwrap() {
        let messages = [json!({"role": "user", "content": item["user"]})];
        assert_eq!(
            template.render(&ChatRequest::new(&messages)).unwrap(),
            item["rendered"].as_str().unwrap()
        );
    }
}

#[test]
fn a_refusal_carries_the_templates_own_words() {
    let template = ChatTemplate::new("{{ raise_exception('No ' ~ messages[0].role) }}", tokens()).unwrap();
    let messages = [json!({"role": "system", "content": ""})];
    let error = template.render(&ChatRequest::new(&messages)).unwrap_err();
    assert!(matches!(error, TextError::Refused(message) if message == "No system"));
}

#[test]
fn hostile_templates_end_in_errors() {
    let endless = "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}";
    let huge = "{% set x = 'a' * 90000000 %}{{ x }}";
    let many = "{% set x = 'a' * 9000000 %}{% for i in range(100) %}{{ x }}{% endfor %}";
    let deep = "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}";
    let nested = format!("{}1{}", "{{ [".repeat(5000), "] }}".repeat(5000));
    let render = |source: &str| ChatTemplate::new(source, tokens())?.render(&ChatRequest::new(&[]));
    assert!(matches!(render(endless), Err(TextError::TemplateTooSlow(_))));
    assert!(matches!(render(huge), Err(TextError::TemplateTooLong(_))));
    assert!(matches!(render(many), Err(TextError::TemplateTooLong(_))));
    assert!(matches!(render(deep), Err(TextError::TemplateFailed(_))));
    assert!(matches!(render(&nested), Err(TextError::BadTemplate(_))));
    assert!(matches!(render("{% if"), Err(TextError::BadTemplate(_))));
    assert!(matches!(render("{% include 'etc/passwd' %}"), Err(TextError::TemplateFailed(_))));
}

#[test]
fn widths_that_no_text_needs_end_in_errors() {
    let render = |source: &str| ChatTemplate::new(source, tokens())?.render(&ChatRequest::new(&[]));
    for wide in [
        "{{ 'a' | indent(100000000000) }}",
        "{{ 'a' | indent(width=100000000000) }}",
        "{{ ('a\n' * 9000000) | indent(9999) }}",
        "{{ '%100000000000d' | format(1) }}",
        "{{ '%.100000000000f' | format(1.5) }}",
        "{{ '{:100000000000}'.format(1) }}",
        "{{ '%99999999999999999999999d' | format(1) }}",
    ] {
        assert!(matches!(render(wide), Err(TextError::TemplateFailed(_))), "{wide}");
    }
    let narrow = "{{ 'a\nb' | indent(2) }}|{{ 'a' | indent(width=3, first=true) }}|{{ '%03d' | format(7) }}|{{ '{:>4}'.format(1) }}";
    assert_eq!(render(narrow).unwrap(), "a\n  b|   a|007|   1");
    assert!(matches!(render("{%}"), Err(TextError::BadTemplate(_))));
    assert!(matches!(render("{{ ()[::-1] }}"), Err(TextError::TemplateFailed(_))), "the engine's own panic");
}

#[test]
fn a_model_without_a_template_may_use_chatml() {
    let messages = [json!({"role": "user", "content": "Hi"})];
    let rendered = ChatTemplate::chatml().unwrap().render(&ChatRequest::new(&messages)).unwrap();
    assert_eq!(rendered, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

#[test]
fn a_template_tells_whether_it_writes_tools_and_opens_reasoning() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/templates/chatml_thinking.jinja");
    let source = std::fs::read_to_string(path).unwrap();
    let template = ChatTemplate::new(&source, tokens()).unwrap();
    assert_eq!(template.source(), source);
    assert!(template.writes_tools());
    assert!(!ChatTemplate::chatml().unwrap().writes_tools());
    let variables = |enable: bool| json!({"enable_thinking": enable}).as_object().unwrap().clone();
    assert!(!template.opens_reasoning(&variables(false)));
    let opening =
        "{{ messages[0].content }}<|im_start|>assistant\n{% if enable_thinking %}<think>\n{% endif %}";
    let template = ChatTemplate::new(opening, tokens()).unwrap();
    assert!(template.opens_reasoning(&variables(true)));
    assert!(!template.opens_reasoning(&variables(false)));
}

#[test]
fn variables_may_replace_tokens_but_not_the_conversation() {
    let template = ChatTemplate::new("{{ bos_token }}{{ messages[0].content }}{{ x }}", tokens()).unwrap();
    let messages = [json!({"role": "user", "content": "Hi"})];
    let mut request = ChatRequest::new(&messages);
    request.variables = json!({"bos_token": "B", "messages": [], "x": 1}).as_object().unwrap().clone();
    assert_eq!(template.render(&request).unwrap(), "BHi1");
}

#[test]
fn a_folder_offers_its_template_in_any_of_three_places() {
    let folder = tempfile::tempdir().unwrap();
    let load = || ChatTemplate::from_folder(folder.path()).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let messages = [json!({"role": "user", "content": "Hi"})];
    let tools = [json!({"type": "function"})];
    let plain = ChatRequest::new(&messages);
    assert!(load().is_none());
    let named =
        json!([{"name": "default", "template": "A{{ bos_token }}"}, {"name": "tool_use", "template": "T"}]);
    write(
        "tokenizer_config.json",
        &json!({"bos_token": {"content": "<b>"}, "chat_template": named}).to_string(),
    );
    assert_eq!(load().unwrap().render(&plain).unwrap(), "A<b>");
    let with_tools = ChatRequest { tools: Some(&tools), ..plain.clone() };
    assert_eq!(load().unwrap().render(&with_tools).unwrap(), "T");
    write("chat_template.json", &json!({"chat_template": "B"}).to_string());
    assert_eq!(load().unwrap().render(&plain).unwrap(), "B");
    write("chat_template.jinja", "C{{ eos_token }}");
    assert_eq!(load().unwrap().render(&plain).unwrap(), "C");
}
