use std::num::NonZeroUsize;

use ropeway_executor::{SamplingParams, Seed};
use ropeway_generation::Sampling;

use super::*;

fn sampled(params: SamplingParams) -> Sampling {
    Sampling::new(params).expect("in range")
}

fn chat(conversation: Conversation) -> Job {
    let messages = vec![json!({"role": "user", "content": "Hi"})];
    let prompt = Prompt::Conversation(Conversation { messages, ..conversation });
    Job::with_sampling(
        prompt,
        sampled(SamplingParams { seed: Seed(7), is_seeded: true, ..SamplingParams::default() }),
    )
}

fn plain() -> Job {
    chat(Conversation::default())
}

fn text() -> Job {
    Job { prompt: Prompt::Text("Once".into()), ..plain() }
}

fn tools(tool_choice: ToolChoice) -> Job {
    let tools = vec![json!({"function": {"name": "f"}}), json!({"function": {"name": "g"}})];
    chat(Conversation { tools, tool_choice, single_call: true, ..Conversation::default() })
}

fn sent(job: &Job, kind: Kind) -> Value {
    body(job, kind, "m").expect("a body")
}

/// The kinds that have a word for what is asked; all others turn it down with this field.
fn accepting(job: &Job, field: &str) -> Vec<Kind> {
    let takes = |kind: &Kind| match body(job, *kind, "m") {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.field.as_deref(), Some(field), "{error}");
            assert!(error.message.contains(kind.name()), "{error}");
            false
        }
    };
    Kind::ALL.into_iter().filter(takes).collect()
}

#[test]
fn a_plain_question_is_the_same_everywhere_and_says_nothing_that_was_not_asked() {
    for kind in Kind::ALL {
        let expected = json!({
            "model": "m", "stream": true, "stream_options": {"include_usage": true},
            "messages": [{"role": "user", "content": "Hi"}], "temperature": 1.0, "top_p": 1.0, "seed": 7,
        });
        assert_eq!(sent(&plain(), kind), expected, "{kind:?}");
        assert_eq!(sent(&text(), kind)["prompt"], "Once");
    }
    assert_eq!((path(&plain()), path(&text())), ("/v1/chat/completions", "/v1/completions"));
}

#[test]
fn numbers_are_sent_as_they_were_written_and_greedy_answers_need_no_seed() {
    let job = Job {
        sampling: sampled(SamplingParams { temperature: 0.7, ..SamplingParams::default() }),
        ..plain()
    };
    assert_eq!(sent(&job, Kind::Openai)["temperature"].to_string(), "0.7");
    let greedy = Job { sampling: sampled(SamplingParams::greedy()), ..plain() };
    assert!(sent(&greedy, Kind::Vllm).get("seed").is_none());
    let large = SamplingParams { seed: Seed(u64::MAX), is_seeded: true, ..SamplingParams::default() };
    let large = Job { sampling: sampled(large), ..plain() };
    assert_eq!(sent(&large, Kind::LlamaServer)["seed"], i32::MAX);
    assert_eq!(sent(&large, Kind::Vllm)["seed"], i64::MAX);
}

#[test]
fn what_a_server_has_no_word_for_is_turned_down_with_its_field() {
    let with = |params| Job { sampling: sampled(params), ..plain() };
    let params = SamplingParams::default;
    let engines = [Kind::Ropeway, Kind::Vllm, Kind::Sglang, Kind::LlamaServer];
    let cases: [(Job, &str, &[Kind]); 9] = [
        (with(SamplingParams { top_k: 5, ..params() }), "top_k", &engines),
        (with(SamplingParams { min_p: 0.1, ..params() }), "min_p", &engines),
        (
            with(SamplingParams { typical_p: 0.9, ..params() }),
            "typical_p",
            &[Kind::Ropeway, Kind::LlamaServer],
        ),
        (with(SamplingParams { repetition_penalty: 1.1, ..params() }), "repetition_penalty", &engines),
        (
            with(SamplingParams { presence_penalty: 1.0, penalty_window: Some(5), ..params() }),
            "repeat_last_n",
            &[Kind::LlamaServer],
        ),
        (Job { min_tokens: 3, ..plain() }, "min_tokens", &[Kind::Ropeway, Kind::Vllm, Kind::Sglang]),
        (Job { ignore_eos: true, ..plain() }, "ignore_eos", &engines),
        (
            Job { n: NonZeroUsize::new(2).unwrap(), ..plain() },
            "n",
            &[Kind::Ropeway, Kind::Vllm, Kind::Sglang, Kind::LlamaServer, Kind::Openai],
        ),
        (
            tools(ToolChoice::Required),
            "tool_choice",
            &[Kind::Ropeway, Kind::Vllm, Kind::Sglang, Kind::LlamaServer, Kind::Openai],
        ),
    ];
    for (job, field, kinds) in cases {
        assert_eq!(accepting(&job, field), kinds, "{field}");
    }
    let penalised = with(SamplingParams { repetition_penalty: 1.5, ..params() });
    assert_eq!(sent(&penalised, Kind::LlamaServer)["repeat_penalty"], 1.5);
    // A window without penalties changes nothing.
    assert_eq!(accepting(&with(SamplingParams { penalty_window: Some(64), ..params() }), "-").len(), 6);
}

#[test]
fn a_forced_tool_is_named_in_each_servers_way() {
    let named = tools(ToolChoice::Named("g".into()));
    let body = sent(&named, Kind::Vllm);
    assert_eq!(body["tool_choice"]["function"]["name"], "g");
    assert_eq!(
        (&body["tools"][0]["type"], &body["parallel_tool_calls"]),
        (&json!("function"), &json!(false))
    );
    let body = sent(&named, Kind::LlamaServer);
    assert_eq!(body["tool_choice"], "required");
    assert_eq!(body["tools"], json!([{"type": "function", "function": {"name": "g"}}]));
    assert!(sent(&tools(ToolChoice::None), Kind::Ollama).get("tools").is_none());
    assert!(sent(&tools(ToolChoice::Auto), Kind::Ollama).get("tool_choice").is_none());
}

#[test]
fn thinking_is_a_variable_of_templates_or_an_effort() {
    let thinking = |variables: Value| {
        let variables = variables.as_object().cloned().unwrap();
        chat(Conversation { variables, ..Conversation::default() })
    };
    let effort = json!({"enable_thinking": true, "reasoning_effort": "low"});
    assert_eq!(sent(&thinking(effort.clone()), Kind::Sglang)["chat_template_kwargs"], effort);
    assert_eq!(sent(&thinking(effort), Kind::Ollama)["reasoning_effort"], "low");
    assert_eq!(sent(&thinking(json!({"enable_thinking": false})), Kind::Openai)["reasoning_effort"], "none");
    let own = thinking(json!({"persona": "pirate"}));
    let engines = [Kind::Ropeway, Kind::Vllm, Kind::Sglang, Kind::LlamaServer];
    assert_eq!(accepting(&own, "chat_template_kwargs.persona"), engines);
}

#[test]
fn a_begun_answer_goes_on_where_the_server_can_do_that() {
    let ending = |ending| chat(Conversation { ending, ..Conversation::default() });
    let begun = ending(Ending::Continue);
    assert_eq!(accepting(&begun, "continue_final_message").len(), 5, "all but OpenAI");
    let body = sent(&begun, Kind::Vllm);
    assert_eq!(
        (&body["continue_final_message"], &body["add_generation_prompt"]),
        (&json!(true), &json!(false))
    );
    assert!(sent(&begun, Kind::Ollama).get("continue_final_message").is_none());
    let closed = accepting(&ending(Ending::Closed), "add_generation_prompt");
    assert_eq!(closed, [Kind::Ropeway, Kind::Vllm, Kind::LlamaServer]);
}

#[test]
fn stop_strings_are_sent_to_servers_that_say_which_it_was_or_run_several_choices() {
    let stop = Job { stop: vec!["END".into()], ..plain() };
    assert_eq!(sent(&stop, Kind::Vllm)["stop"], json!(["END"]));
    assert!(sent(&stop, Kind::Ollama).get("stop").is_none());
    let several = Job { n: NonZeroUsize::new(2).unwrap(), ..stop };
    assert_eq!(sent(&several, Kind::Openai)["stop"], json!(["END"]));
}

#[test]
fn forms_are_written_in_the_servers_words() {
    let with = |job: Job, spec| Job { structured: Some(StructuredOutput::new(spec, "guided")), ..job };
    let schema =
        || GrammarSpec::JsonSchema { schema: json!({"type": "integer"}), strictness: Strictness::Strict };
    for kind in Kind::ALL {
        let format = &sent(&with(plain(), schema()), kind)["response_format"];
        assert_eq!(format["json_schema"]["schema"], json!({"type": "integer"}), "{kind:?}");
        assert_eq!(format["json_schema"]["strict"], true);
        let format = &sent(&with(plain(), GrammarSpec::JsonObject), kind)["response_format"];
        assert_eq!(*format, json!({"type": "json_object"}));
    }
    let engines = [Kind::Ropeway, Kind::Vllm, Kind::Sglang, Kind::LlamaServer];
    assert_eq!(accepting(&with(text(), schema()), "guided"), engines);
    assert_eq!(
        sent(&with(text(), GrammarSpec::JsonObject), Kind::LlamaServer)["json_schema"]["type"],
        "object"
    );
    let regex = with(plain(), GrammarSpec::Regex("a+".into()));
    assert_eq!(accepting(&regex, "guided"), [Kind::Ropeway, Kind::Vllm, Kind::Sglang]);
    assert_eq!(sent(&regex, Kind::Vllm)["structured_outputs"], json!({"regex": "a+"}));
    let choice = with(plain(), GrammarSpec::Choice(vec!["a.b".into(), "\"c\"".into()]));
    assert_eq!(accepting(&choice, "guided"), engines);
    assert_eq!(sent(&choice, Kind::Sglang)["regex"], r#"(a\.b|"c")"#);
    assert_eq!(sent(&choice, Kind::LlamaServer)["grammar"], r#"root ::= "a.b" | "\"c\"""#);
    let grammar = with(plain(), GrammarSpec::Grammar("root ::= \"x\"".into()));
    assert_eq!(accepting(&grammar, "guided"), engines);
}

#[test]
fn a_salt_divides_caches_where_there_is_a_word_for_it() {
    for kind in Kind::ALL {
        let mut salted = sent(&plain(), kind);
        salt(&mut salted, kind, &[0xab, 1]);
        let divides = matches!(kind, Kind::Vllm | Kind::Sglang | Kind::Ropeway);
        assert_eq!(salted.get("cache_salt"), divides.then_some(&json!("ab01")));
        let mut plain = sent(&plain(), kind);
        salt(&mut plain, kind, &[]);
        assert!(plain.get("cache_salt").is_none());
    }
}
