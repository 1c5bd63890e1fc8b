//! Models made of others: a name for a model with a system prompt, first messages, default options and perhaps a chat
//! template of its own. It is what Ollama's `/api/create` makes of a Modelfile; nothing of the weights is copied.
//!
//! ```text
//! derived "mario" ──from──> "smollm2:135m"        a question for mario runs on smollm2's engine, with mario's words around it
//! ```
//! It holds for every API: system prompt, messages and stop texts are added where a job is prepared ([`Derived::complete`]),
//! sampling parameters where a family's defaults would be taken ([`Derived::sampling`]). What a request says itself comes
//! first. It must never load anything, or change the model that it is made of.

use ropeway_executor::SamplingParams;
use ropeway_generation::{Conversation, Job, Prompt};
use ropeway_text::{ChatTemplate, OutputStyle, TemplateTokens};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::capability::Capability;
use crate::ollama::options::Options;

/// A model made of another one, as it is kept on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Derived {
    /// What clients call it.
    pub name: String,
    /// The full name of the model that it is made of.
    pub from: String,
    /// What comes before every conversation that has no system prompt of its own.
    #[serde(default)]
    pub system: String,
    /// Jinja text; if empty, the model's own template is used.
    #[serde(default)]
    pub template: String,
    /// Default options in Ollama's words.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// Messages that every conversation begins with.
    #[serde(default)]
    pub messages: Vec<Value>,
    /// Licence texts.
    #[serde(default)]
    pub license: Vec<String>,
    /// When it was made, in seconds since 1970.
    #[serde(default)]
    pub created: u64,
}

impl Derived {
    /// Its default options. They were readable when it was made; one that someone spoiled since says nothing.
    pub fn options(&self) -> Options {
        serde_json::from_value(Value::Object(self.parameters.clone())).unwrap_or_default()
    }

    /// Its sampling parameters, and `defaults` where it says nothing.
    pub fn sampling(&self, defaults: SamplingParams, context: usize) -> SamplingParams {
        self.options().over(defaults, context)
    }

    /// What its own template makes of the model, as far as the text tells; `None` if it uses the model's.
    pub fn capabilities(&self) -> Option<Vec<Capability>> {
        let template = Some(&self.template).filter(|template| !template.is_empty())?;
        let template = ChatTemplate::new(template, TemplateTokens::default()).ok()?;
        let style = OutputStyle::detect(Some(template.source()), |_| false);
        Some(Capability::of_text_model(&template, &style, false))
    }

    /// Adds to a job what the request left out.
    pub fn complete(&self, job: &mut Job) {
        self.introduce(&mut job.prompt);
        let options = self.options();
        if job.stop.is_empty() {
            job.stop = options.stops();
        }
        job.max_tokens = job.max_tokens.or_else(|| options.max_tokens());
    }

    /// Puts its system prompt and its messages before a conversation. A text is continued as it is.
    pub fn introduce(&self, prompt: &mut Prompt) {
        let Prompt::Conversation(Conversation { messages, .. }) = prompt else { return };
        let has_system = messages.first().is_some_and(|message| message["role"] == "system");
        let begin = usize::from(has_system);
        messages.splice(begin..begin, self.messages.iter().cloned());
        if !has_system && !self.system.is_empty() {
            messages.insert(0, json!({ "role": "system", "content": self.system }));
        }
    }
}

#[cfg(test)]
mod tests {
    use ropeway_generation::Sampling;

    use super::*;

    fn mario() -> Derived {
        Derived {
            name: "mario".into(),
            from: "m:1b".into(),
            system: "You are Mario.".into(),
            messages: vec![
                json!({"role": "user", "content": "Who?"}),
                json!({"role": "assistant", "content": "Me."}),
            ],
            parameters: json!({"temperature": 0.1, "stop": ["!"], "num_predict": 9})
                .as_object()
                .cloned()
                .unwrap(),
            ..Derived::default()
        }
    }

    fn completed(messages: &Value) -> (Vec<String>, Job) {
        let messages = messages.as_array().cloned().unwrap();
        let prompt = Prompt::Conversation(Conversation { messages, ..Conversation::default() });
        let mut job = Job::with_sampling(prompt, Sampling::new(SamplingParams::default()).unwrap());
        mario().complete(&mut job);
        let Prompt::Conversation(conversation) = &job.prompt else { unreachable!() };
        let texts =
            conversation.messages.iter().map(|message| message["content"].as_str().unwrap().to_owned());
        (texts.collect(), job)
    }

    #[test]
    fn a_conversation_begins_with_its_own_system_prompt_or_the_models_and_then_the_models_messages() {
        let (texts, job) = completed(&json!([{"role": "user", "content": "Hi"}]));
        assert_eq!(texts, ["You are Mario.", "Who?", "Me.", "Hi"]);
        assert_eq!((job.stop, job.max_tokens), (vec!["!".to_owned()], Some(9)));
        let (texts, _) = completed(
            &json!([{"role": "system", "content": "Be Luigi."}, {"role": "user", "content": "Hi"}]),
        );
        assert_eq!(texts, ["Be Luigi.", "Who?", "Me.", "Hi"]);
    }

    #[test]
    fn a_text_is_continued_as_it_is() {
        let sampling = Sampling::new(SamplingParams::default()).unwrap();
        let mut job = Job::with_sampling(Prompt::Text("Once".into()), sampling);
        mario().complete(&mut job);
        assert!(matches!(job.prompt, Prompt::Text(text) if text == "Once"));
    }

    #[test]
    fn a_template_of_its_own_says_what_it_can_do() {
        assert_eq!(mario().capabilities(), None);
        let thinker = Derived { template: "{{ messages[0].content }}<think>".into(), ..mario() };
        assert_eq!(thinker.capabilities(), Some(vec![Capability::Completion, Capability::Thinking]));
    }

    #[test]
    fn what_is_kept_on_disk_is_read_back() {
        let text = serde_json::to_string(&mario()).unwrap();
        assert_eq!(serde_json::from_str::<Derived>(&text).unwrap(), mario());
    }
}
