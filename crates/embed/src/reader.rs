//! From texts to what the model reads: prompt, tokens, length, frame. Runs on the caller's thread.

use ropeway_executor::Class;
use ropeway_text::{Around, InText, PairFrame, Special, Tokenizer};

use crate::passes::{Job, Wanted};
use crate::{EmbedError, Recipe};

/// What to embed.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A text; nothing in it is special.
    Text(&'a str),
    /// The model's own token ids, taken as they are: no prompt, nothing around them.
    Tokens(&'a [u32]),
}

/// What a text is for; models may want other words before each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// Nothing in particular.
    #[default]
    Plain,
    /// To search with.
    Query,
    /// To be found.
    Document,
}

/// What becomes of a text longer than the model can take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TooLong {
    /// Its end is left out.
    #[default]
    Truncate,
    /// It is refused.
    Refuse,
}

/// How to embed.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmbedOptions {
    /// What the text is for.
    pub purpose: Purpose,
    /// Only so many values, brought to length 1 again.
    pub dimensions: Option<usize>,
    /// What becomes of a text that is too long.
    pub too_long: TooLong,
    /// Whether the vector is brought to length 1; `None` as the model's files say.
    pub normalise: Option<bool>,
    /// How urgent it is.
    pub class: Class,
}

/// Content of users: the texts of special tokens mean nothing, and the frame is added here.
const CONTENT: Special = Special { in_text: InText::Plain, around: Around::Omit };

/// The tokenizer and what the model's files say, ready to read texts.
#[derive(Debug)]
pub struct Reader {
    pub(crate) tokenizer: Option<Tokenizer>,
    pub(crate) recipe: Recipe,
    /// Tokens of the longest text, its frame included.
    pub(crate) limit: usize,
    pub(crate) vocab: usize,
}

/// A job, and whether something was cut off.
#[derive(Debug)]
pub(crate) struct Read {
    pub job: Job,
    pub truncated: bool,
}

impl Reader {
    pub(crate) fn single(&self, input: Input<'_>, options: &EmbedOptions) -> Result<Read, EmbedError> {
        let (mut tokens, around): (Vec<u32>, _) = match input {
            Input::Tokens(tokens) => (tokens.to_vec(), (&[][..], &[][..])),
            Input::Text(text) => {
                let tokenizer = self.tokenizer()?;
                let prompt = match options.purpose {
                    Purpose::Plain => &self.recipe.prompts.plain,
                    Purpose::Query => &self.recipe.prompts.query,
                    Purpose::Document => &self.recipe.prompts.document,
                };
                let tokens = if prompt.is_empty() {
                    tokenizer.encode(text, CONTENT)?
                } else {
                    tokenizer.encode(&format!("{prompt}{text}"), CONTENT)?
                };
                (tokens, tokenizer.frame())
            }
        };
        let (before, after) = around;
        let room = self.limit.saturating_sub(before.len() + after.len()).max(1);
        let truncated = tokens.len() > room;
        if truncated && options.too_long == TooLong::Refuse {
            let tokens = tokens.len() + before.len() + after.len();
            return Err(EmbedError::TooLong { tokens, limit: self.limit });
        }
        tokens.truncate(room);
        tokens.splice(0..0, before.iter().copied());
        tokens.extend_from_slice(after);
        self.check(&tokens)?;
        let job = Job { tokens, types: Vec::new(), wanted: Wanted::Vector, class: options.class };
        Ok(Read { job, truncated })
    }

    pub(crate) fn pair(&self, query: &str, document: &str, class: Class) -> Result<Read, EmbedError> {
        let tokenizer = self.tokenizer()?;
        let frame = tokenizer.pair_frame().ok_or(EmbedError::NotARanker)?;
        let mut parts = [tokenizer.encode(query, CONTENT)?, tokenizer.encode(document, CONTENT)?];
        let around = frame.before.len() + frame.between.len() + frame.after.len();
        let truncated = shorten(&mut parts, self.limit.saturating_sub(around));
        let job = framed(frame, &parts, class);
        self.check(&job.tokens)?;
        Ok(Read { job, truncated })
    }

    fn tokenizer(&self) -> Result<&Tokenizer, EmbedError> {
        let what = || EmbedError::Unsupported { what: "a tokenizer that is not among its files".into() };
        self.tokenizer.as_ref().ok_or_else(what)
    }

    fn check(&self, tokens: &[u32]) -> Result<(), EmbedError> {
        if tokens.is_empty() {
            return Err(EmbedError::Empty);
        }
        match tokens.iter().find(|&&token| token as usize >= self.vocab) {
            Some(&token) => Err(EmbedError::BadToken { token, vocab: self.vocab }),
            None => Ok(()),
        }
    }
}

/// Cuts the longer of two texts until both fit; whether anything was cut.
fn shorten(parts: &mut [Vec<u32>; 2], room: usize) -> bool {
    let [first, second] = parts;
    let excess = (first.len() + second.len()).saturating_sub(room);
    if excess == 0 {
        return false;
    }
    // What fits when the longer one gives first, then both alike; the first keeps the odd token.
    let shorter = first.len().min(second.len());
    let (a, b) = if 2 * shorter <= room {
        let other = room - shorter;
        if first.len() <= second.len() { (shorter, other) } else { (other, shorter) }
    } else {
        (room.div_ceil(2), room / 2)
    };
    first.truncate(a);
    second.truncate(b);
    true
}

fn framed(frame: &PairFrame, [first, second]: &[Vec<u32>; 2], class: Class) -> Job {
    let mut tokens = [&frame.before[..], first, &frame.between].concat();
    let mut types = vec![0; tokens.len()];
    tokens.extend_from_slice(second);
    tokens.extend_from_slice(&frame.after);
    types.resize(tokens.len(), frame.second_type);
    Job { tokens, types, wanted: Wanted::Score, class }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_text_of_a_pair_gives_first() {
        let lengths = |a: usize, b: usize, room: usize| {
            let mut parts = [vec![0; a], vec![0; b]];
            shorten(&mut parts, room);
            (parts[0].len(), parts[1].len())
        };
        assert_eq!(lengths(4, 20, 30), (4, 20));
        assert_eq!(lengths(4, 40, 30), (4, 26));
        assert_eq!(lengths(40, 4, 30), (26, 4));
        assert_eq!(lengths(40, 50, 31), (16, 15));
        assert_eq!(lengths(1, 1, 0), (0, 0));
    }
}
