//! What was said so far, and forgetting the oldest of it when it no longer fits.

use serde_json::{Value, json};

/// A system message and turns of question and answer.
#[derive(Debug, Default)]
pub struct History {
    system: Option<String>,
    turns: Vec<Turn>,
}

#[derive(Debug)]
struct Turn {
    question: String,
    /// Missing while the question is being answered.
    answer: Option<String>,
}

/// How many tokens a prompt may have.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// More than this crowds out the answer.
    most: usize,
    /// Forgetting goes on down to this, so that the turns after it find their prefix computed.
    target: usize,
}

impl Room {
    /// In a context of so many tokens: an eighth is kept for the answer, and forgetting frees half.
    pub fn of_context(tokens: usize) -> Room {
        Room { most: tokens - tokens / 8, target: tokens / 2 }
    }
}

/// A prompt, and how much had to be forgotten for it.
#[derive(Debug, PartialEq, Eq)]
pub struct Fitted<P> {
    /// What was made of the messages.
    pub prompt: P,
    /// Turns that are gone from the conversation.
    pub forgotten: usize,
}

impl History {
    /// Nothing was said yet.
    pub fn new(system: Option<String>) -> History {
        History { system, turns: Vec::new() }
    }

    /// Sets the system message, or takes it away.
    pub fn set_system(&mut self, text: Option<String>) {
        self.system = text;
    }

    /// Forgets everything but the system message.
    pub fn clear(&mut self) {
        self.turns.clear();
    }

    /// Adds a question, to be answered or withdrawn.
    pub fn ask(&mut self, question: String) {
        self.turns.push(Turn { question, answer: None });
    }

    /// Answers the latest question.
    pub fn answer(&mut self, answer: String) {
        if let Some(turn) = self.turns.last_mut() {
            turn.answer = Some(answer);
        }
    }

    /// Forgets the latest question if it has no answer.
    pub fn withdraw(&mut self) {
        self.turns.pop_if(|turn| turn.answer.is_none());
    }

    /// The conversation in the form that chat templates read.
    pub fn messages(&self) -> Vec<Value> {
        let message = |role: &str, content: &str| json!({ "role": role, "content": content });
        let system = self.system.iter().map(|text| message("system", text));
        let turns = self.turns.iter().flat_map(|turn| {
            let answer = turn.answer.iter().map(|answer| message("assistant", answer));
            [message("user", &turn.question)].into_iter().chain(answer)
        });
        system.chain(turns).collect()
    }

    /// The prompt as `prepare` gives it, the oldest turns forgotten while it has too many `tokens`. The latest question
    /// stays, whatever its length.
    pub fn fit<P>(
        &mut self,
        room: Room,
        prepare: impl Fn(Vec<Value>) -> P,
        tokens: impl Fn(&P) -> usize,
    ) -> Fitted<P> {
        let mut fitted = Fitted { prompt: prepare(self.messages()), forgotten: 0 };
        if tokens(&fitted.prompt) <= room.most {
            return fitted;
        }
        while tokens(&fitted.prompt) > room.target && self.turns.len() > 1 {
            self.turns.remove(0);
            fitted.forgotten += 1;
            fitted.prompt = prepare(self.messages());
        }
        fitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One token per letter of the contents.
    fn fit(mut history: History, most: usize, target: usize) -> Fitted<String> {
        let content = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
        history.fit(
            Room { most, target },
            |messages| messages.iter().map(content).collect::<String>(),
            String::len,
        )
    }

    fn talked() -> History {
        let mut history = History::new(Some("S".into()));
        for turn in ["aa", "bb", "cc"] {
            history.ask(turn.into());
            history.answer(turn.to_uppercase());
        }
        history.ask("dd".into());
        history
    }

    #[test]
    fn messages_alternate_after_the_system_message() {
        let messages = talked().messages();
        let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
        assert_eq!(roles[..3], ["system", "user", "assistant"]);
        assert_eq!((messages.len(), roles.last()), (8, Some(&"user")));
    }

    #[test]
    fn what_fits_is_kept_whole() {
        let fitted = fit(talked(), 15, 2);
        assert_eq!((fitted.prompt.as_str(), fitted.forgotten), ("SaaAAbbBBccCCdd", 0));
    }

    #[test]
    fn the_oldest_turns_go_first_and_the_system_message_stays() {
        let fitted = fit(talked(), 14, 8);
        assert_eq!((fitted.prompt.as_str(), fitted.forgotten), ("SccCCdd", 2));
    }

    #[test]
    fn the_latest_question_stays_even_when_it_is_too_long() {
        let fitted = fit(talked(), 1, 1);
        assert_eq!((fitted.prompt.as_str(), fitted.forgotten), ("Sdd", 3));
    }

    #[test]
    fn only_an_unanswered_question_is_withdrawn() {
        let mut history = talked();
        history.withdraw();
        history.withdraw();
        assert_eq!(history.messages().len(), 7);
    }

    #[test]
    fn clearing_keeps_the_system_message() {
        let mut history = talked();
        history.clear();
        assert_eq!(history.messages(), [json!({ "role": "system", "content": "S" })]);
        history.set_system(None);
        assert_eq!(history.messages(), Vec::<Value>::new());
    }
}
