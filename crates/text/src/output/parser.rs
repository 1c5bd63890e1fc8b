//! The parser: looks for tags in text and thoughts, and hands what follows an opening tag to a [`Body`].
//!
//! ```text
//!            reasoning tag                 call tag, or `{` and `[` at a start
//! Reasoning <-------------- Text ------------------------------------------> Calls
//!            -------------->     <------------------------------------------
//!            closing tag                   end of the call, or no call after all
//! ```
//!
//! It relies on the tags of `style` being told apart by their beginnings. It must never hand out what may still turn out
//! to be something else, nor look at a character more than a fixed number of times.

use super::Delta;
use super::body::{Body, Names, Opening, Step};
use super::call::Calls;
use super::sink::Sink;
use super::style::{OutputStyle, Reasoning, Untagged};

/// A call that has more bytes than this before it can be handed out is text; files that agents write stay below.
const MAX_HELD: usize = 1 << 20;

/// White space that waits for what follows it; no longer than the longest tag.
const MAX_SPACE: usize = 32;

/// What a request wants to have taken apart.
#[derive(Clone, Debug, Default)]
pub struct OutputOptions {
    /// Whether the request has tools; without them nothing is a call.
    pub tools: bool,
    /// Whether reasoning is told from text; otherwise its tags are text.
    pub reasoning: bool,
    /// Whether the prompt ended inside the model's thoughts ([`OutputStyle::is_reasoning_open`]).
    pub prompt_opens_reasoning: bool,
    /// The names of the request's tools. Calls without tags are taken for calls only if they name one of these.
    pub known_tools: Vec<String>,
}

/// Takes one answer apart.
#[derive(Debug)]
pub struct OutputParser {
    tags: Vec<Tag>,
    untagged: Untagged,
    known_tools: Vec<String>,
    state: State,
    place: Place,
    /// White space that is dropped if reasoning or a call follows.
    space: String,
    /// What was read and not handed out: the beginning of a tag, or a call that may be none.
    held: String,
    sink: Sink,
    unfinished: Option<usize>,
}

#[derive(Debug)]
enum State {
    Text,
    Reasoning { tags: Reasoning, started: bool },
    Calls { body: Body, tagged: bool, first: usize },
}

/// Where in the answer the parser is while it reads text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Start,
    AfterReasoning,
    AfterCall,
    InsideText,
}

#[derive(Clone, Copy, Debug)]
struct Tag {
    text: &'static str,
    meaning: Meaning,
}

#[derive(Clone, Copy, Debug)]
enum Meaning {
    Reasoning(Reasoning),
    Calls(Opening),
    EndOfCall,
}

/// How what is held compares to the tags that may stand there.
enum Match {
    Whole(Meaning),
    Beginning,
    None,
}

impl OutputParser {
    /// A parser for one answer of a model that writes `style`.
    pub fn new(style: &OutputStyle, options: OutputOptions) -> Self {
        let state = match style.reasoning.first() {
            Some(&tags) if options.reasoning && options.prompt_opens_reasoning => {
                State::Reasoning { tags, started: false }
            }
            _ => State::Text,
        };
        Self {
            tags: tags(style, &options),
            untagged: if options.tools { style.untagged } else { Untagged::None },
            known_tools: options.known_tools,
            state,
            place: Place::Start,
            space: String::new(),
            held: String::new(),
            sink: Sink::default(),
            unfinished: None,
        }
    }

    /// Takes the next piece of the answer and returns what became certain by it.
    pub fn push(&mut self, text: &str) -> Vec<Delta> {
        if self.has_nothing_to_find() {
            self.sink.text(text);
        } else {
            text.chars().for_each(|character| self.step(character));
        }
        self.sink.take()
    }

    /// Ends the answer and returns what was kept back; an unfinished call becomes text.
    pub fn finish(&mut self) -> Vec<Delta> {
        match self.state {
            State::Calls { .. } => self.abandon(),
            State::Reasoning { .. } if !self.held.is_empty() => self.hand_out_thought(),
            State::Reasoning { .. } => {}
            State::Text if self.held.is_empty() && self.place != Place::Start => {}
            State::Text => self.hand_out_text(),
        }
        self.space.clear();
        self.sink.take()
    }

    /// The call whose arguments the model did not write to their end. They were closed to be valid JSON, and may say
    /// something else than the model was about to: do not act on them unasked.
    pub fn unfinished_call(&self) -> Option<usize> {
        self.unfinished
    }

    /// Whether the model is thinking, as far as is known.
    pub fn is_reasoning(&self) -> bool {
        matches!(self.state, State::Reasoning { .. })
    }

    fn has_nothing_to_find(&self) -> bool {
        self.tags.is_empty() && self.untagged == Untagged::None && matches!(self.state, State::Text)
    }

    fn step(&mut self, character: char) {
        match self.state {
            State::Text if self.held.is_empty() => self.begin(character),
            State::Text => self.extend_tag(character),
            State::Reasoning { tags, started } => self.think(tags, started, character),
            State::Calls { .. } => self.call(character),
        }
    }

    /// A character of text with nothing held before it.
    fn begin(&mut self, character: char) {
        let at_start = self.place != Place::InsideText;
        if at_start && self.is_gap(character) {
            return self.skip(character);
        }
        self.held.push(character);
        match self.matches() {
            Match::Whole(_) | Match::Beginning => {}
            Match::None if at_start && self.may_open_untagged(character) => self.start_untagged(),
            Match::None => self.hand_out_text(),
        }
    }

    /// White space, and Llama's separator between calls.
    fn is_gap(&self, character: char) -> bool {
        character.is_whitespace() || (character == ';' && self.place == Place::AfterCall)
    }

    fn skip(&mut self, character: char) {
        if self.place != Place::AfterReasoning {
            self.space.push(character);
        }
        if self.space.len() > MAX_SPACE {
            self.hand_out_text();
        }
    }

    /// A character after the beginning of a tag.
    fn extend_tag(&mut self, character: char) {
        self.held.push(character);
        match self.matches() {
            Match::Whole(meaning) => self.open(meaning),
            Match::Beginning => {}
            Match::None => {
                self.held.pop();
                if self.place != Place::InsideText
                    && self.may_open_untagged('[')
                    && self.held.starts_with('[')
                {
                    self.start_untagged();
                } else {
                    self.hand_out_text();
                }
                self.step(character);
            }
        }
    }

    fn matches(&self) -> Match {
        let mut matched = Match::None;
        for tag in self.tags.iter().filter(|tag| tag.meaning.fits(self.place)) {
            if tag.text == self.held {
                return Match::Whole(tag.meaning);
            }
            if tag.text.starts_with(&self.held) {
                matched = Match::Beginning;
            }
        }
        matched
    }

    fn open(&mut self, meaning: Meaning) {
        match meaning {
            Meaning::Reasoning(tags) => {
                self.drop_held();
                self.state = State::Reasoning { tags, started: false };
            }
            Meaning::EndOfCall => self.drop_held(),
            Meaning::Calls(opening) => {
                let first = self.sink.calls();
                self.state = State::Calls { body: Body::Undecided(opening), tagged: true, first };
            }
        }
    }

    fn may_open_untagged(&self, character: char) -> bool {
        match self.untagged {
            Untagged::None => false,
            Untagged::Json | Untagged::JsonAndPython => matches!(character, '{' | '['),
        }
    }

    /// Reads what is held, which begins with a bracket, as a call without a tag.
    fn start_untagged(&mut self) {
        let held = std::mem::take(&mut self.held);
        let body = match (held.starts_with('{'), self.untagged) {
            (false, Untagged::JsonAndPython) => Body::UndecidedList,
            _ => Body::Json(Calls::new()),
        };
        // An undecided list has its bracket behind it.
        let read = usize::from(matches!(body, Body::UndecidedList));
        self.held.push_str(&held[..read]);
        self.state = State::Calls { body, tagged: false, first: self.sink.calls() };
        held[read..].chars().for_each(|character| self.step(character));
    }

    fn call(&mut self, character: char) {
        let State::Calls { body, tagged, .. } = &mut self.state else { return };
        let names = if *tagged { Names::Any } else { Names::Known(&self.known_tools) };
        match body.push(character, names, &mut self.sink) {
            Step::Hold => {
                self.held.push(character);
                if self.held.len() > MAX_HELD {
                    self.abandon();
                }
            }
            Step::Taken => self.drop_held(),
            Step::TakenBefore => {
                self.drop_held();
                self.held.push(character);
            }
            Step::Done => {
                self.drop_held();
                self.state = State::Text;
                self.place = Place::AfterCall;
            }
            Step::Bad => {
                self.abandon();
                self.step(character);
            }
        }
    }

    /// Gives up a run of calls: what was not handed out becomes text.
    fn abandon(&mut self) {
        let State::Calls { mut body, first, .. } = std::mem::replace(&mut self.state, State::Text) else {
            return;
        };
        let calls = self.sink.calls();
        if body.close(&mut self.sink) {
            self.unfinished = calls.checked_sub(1);
        }
        if calls > first {
            self.place = Place::AfterCall;
        }
        if calls > first && self.held.trim().is_empty() {
            self.drop_held();
        } else {
            self.hand_out_text();
        }
    }

    /// A character of the model's thoughts.
    fn think(&mut self, tags: Reasoning, started: bool, character: char) {
        self.held.push(character);
        if self.held == tags.close {
            self.drop_held();
            self.state = State::Text;
            self.place = Place::AfterReasoning;
        } else if self.held == tags.open && !started {
            self.drop_held();
        } else if tags.close.starts_with(&self.held) || (!started && tags.open.starts_with(&self.held)) {
            // Wait for the rest of the tag.
        } else if self.held.len() > character.len_utf8() {
            self.held.pop();
            self.hand_out_thought();
            self.step(character);
        } else if !character.is_whitespace() {
            self.hand_out_thought();
        } else {
            self.held.clear();
            self.pause(started, character);
        }
    }

    /// White space among thoughts: dropped at their start and, up to a limit, at their end.
    fn pause(&mut self, started: bool, character: char) {
        if started {
            self.space.push(character);
        }
        while self.space.len() > MAX_SPACE {
            let first = self.space.remove(0);
            self.sink.reasoning(first.encode_utf8(&mut [0; 4]));
        }
    }

    fn hand_out_thought(&mut self) {
        self.sink.reasoning(&self.space);
        self.sink.reasoning(&self.held);
        self.drop_held();
        if let State::Reasoning { started, .. } = &mut self.state {
            *started = true;
        }
    }

    fn hand_out_text(&mut self) {
        self.sink.text(&self.space);
        self.sink.text(&self.held);
        self.drop_held();
        self.place = Place::InsideText;
    }

    fn drop_held(&mut self) {
        self.space.clear();
        self.held.clear();
    }
}

impl Meaning {
    /// Whether a tag may stand at a place: thoughts only where a part of the answer begins, ends after calls.
    fn fits(self, place: Place) -> bool {
        match self {
            Meaning::Calls(_) => true,
            Meaning::Reasoning(_) => place != Place::InsideText,
            Meaning::EndOfCall => place == Place::AfterCall,
        }
    }
}

/// The tags that a request looks for.
fn tags(style: &OutputStyle, options: &OutputOptions) -> Vec<Tag> {
    let mut tags = Vec::new();
    if options.reasoning {
        let tag =
            |&reasoning: &Reasoning| Tag { text: reasoning.open, meaning: Meaning::Reasoning(reasoning) };
        tags.extend(style.reasoning.iter().map(tag));
    }
    if options.tools {
        for format in &style.formats {
            let open = |&(text, opening)| Tag { text, meaning: Meaning::Calls(opening) };
            tags.extend(format.opens.iter().map(open));
            let close = |&text| Tag { text, meaning: Meaning::EndOfCall };
            tags.extend(format.closes.iter().map(close));
        }
    }
    tags
}
