//! Calls whose name stands before their arguments: `get_weather[ARGS]{"city": "Paris"}` and the like.

use super::body::{Step, stream};
use super::json::Json;
use super::sink::Sink;

/// The longest header in bytes: the tags of the wordiest format and a name of the 64 letters that APIs allow.
const MAX_HEADER: usize = 256;

/// One such call.
#[derive(Debug)]
pub(super) struct Headed {
    name_of: fn(&str) -> Option<&str>,
    header: String,
    arguments: Option<Json>,
}

impl Headed {
    pub(super) fn new(name_of: fn(&str) -> Option<&str>) -> Self {
        Self { name_of, header: String::new(), arguments: None }
    }

    pub(super) fn push(&mut self, character: char, sink: &mut Sink) -> Step {
        if self.arguments.is_none() && character != '{' {
            self.header.push(character);
            return if self.header.len() > MAX_HEADER { Step::Bad } else { Step::Hold };
        }
        if self.arguments.is_none() {
            let Some(name) = (self.name_of)(&self.header).filter(|name| is_name(name)) else {
                return Step::Bad;
            };
            sink.call(name);
        }
        stream(self.arguments.get_or_insert_with(Json::new), character, sink)
    }

    pub(super) fn close(&mut self, sink: &mut Sink) -> bool {
        let closing = self.arguments.as_mut().map(Json::close).unwrap_or_default();
        sink.arguments(&closing);
        !closing.is_empty()
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/'))
}

/// Mistral: `name[ARGS]`, `name[CALL_ID]id[ARGS]` or just `name`.
pub(super) fn mistral(header: &str) -> Option<&str> {
    header.split('[').next().map(str::trim)
}

/// DeepSeek: `function<｜tool▁sep｜>name`, a line break and the opening of a code block, or `name<｜tool▁sep｜>`.
pub(super) fn deepseek(header: &str) -> Option<&str> {
    let header = header.trim_start();
    let header = header.strip_prefix("<｜tool▁call▁begin｜>").unwrap_or(header);
    let (before, after) = header.split_once("<｜tool▁sep｜>")?;
    let name = after.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("```"));
    name.or(Some(before.trim()))
}

/// Kimi: `functions.name:0<|tool_call_argument_begin|>`.
pub(super) fn kimi(header: &str) -> Option<&str> {
    let header = header.trim_start();
    let header = header.strip_prefix("<|tool_call_begin|>").unwrap_or(header).trim_start();
    let (id, _) = header.split_once("<|tool_call_argument_begin|>")?;
    let name = id.trim().strip_prefix("functions.").unwrap_or(id.trim());
    Some(name.rsplit_once(':').map_or(name, |(name, _)| name))
}

/// Llama 3.1: `<function=name>`.
pub(super) fn function_tag(header: &str) -> Option<&str> {
    header.trim_end().strip_suffix('>')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_name_the_function() {
        assert_eq!(mistral(" weather[CALL_ID]ab12[ARGS]"), Some("weather"));
        assert_eq!(mistral("weather"), Some("weather"));
        assert_eq!(deepseek("function<｜tool▁sep｜>weather\n```json\n"), Some("weather"));
        assert_eq!(deepseek("<｜tool▁call▁begin｜>weather<｜tool▁sep｜>"), Some("weather"));
        assert_eq!(kimi("functions.weather:0<|tool_call_argument_begin|>"), Some("weather"));
        assert_eq!(function_tag("weather>"), Some("weather"));
        assert_eq!(function_tag("weather"), None);
    }
}
