//! The texts of a request: a text, several, a list of token ids, or several such lists.
//!
//! They are read into what they are, without a JSON tree, and no more of them are kept than a request may have. What is
//! wrong with them is remembered rather than reported at once, so that the error can name the field.

use std::fmt;

use ropeway_embed::Input;
use ropeway_generation::{Prompt, RequestError};
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::token_ids::{Id, NoTokenId, ids};

/// A text, as text or as the model's own tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextInput {
    /// Text, to be tokenised.
    Text(String),
    /// The model's own tokens.
    Tokens(Vec<u32>),
}

impl TextInput {
    /// The text as an embedder takes it.
    pub fn as_input(&self) -> Input<'_> {
        match self {
            TextInput::Text(text) => Input::Text(text),
            TextInput::Tokens(tokens) => Input::Tokens(tokens),
        }
    }

    /// How much there is to read.
    pub fn bytes(&self) -> usize {
        match self {
            TextInput::Text(text) => text.len(),
            TextInput::Tokens(tokens) => tokens.len(),
        }
    }
}

impl From<TextInput> for Prompt {
    fn from(text: TextInput) -> Self {
        match text {
            TextInput::Text(text) => Prompt::Text(text),
            TextInput::Tokens(tokens) => Prompt::Tokens(tokens),
        }
    }
}

/// At most `MOST` texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts<const MOST: usize>(Result<Vec<TextInput>, Wrong>);

/// Why texts can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wrong {
    NoTokenId(NoTokenId),
    NoText,
    TooMany(usize),
}

impl<const MOST: usize> Default for Texts<MOST> {
    fn default() -> Self {
        Self(Ok(Vec::new()))
    }
}

impl<const MOST: usize> Texts<MOST> {
    /// The texts in their order, none if the list was empty; errors are about `field`.
    pub fn read(self, field: &str) -> Result<Vec<TextInput>, RequestError> {
        self.0.map_err(|wrong| match wrong {
            Wrong::NoTokenId(error) => error.about(field),
            Wrong::NoText => {
                let message = format!(
                    "{field} is a text, a list of texts, a list of token ids or a list of such lists"
                );
                RequestError::invalid(message).at(field)
            }
            Wrong::TooMany(texts) => too_many(texts, MOST, field),
        })
    }
}

/// The error for more texts than one request may have.
pub(crate) fn too_many(texts: usize, most: usize, field: &str) -> RequestError {
    let message = format!("{texts} texts are more than the {most} a request may have; send several requests");
    RequestError::invalid(message).at(field)
}

/// One item of a list: a number of a list of ids, or a text of a list of texts.
enum Item {
    Id(Id),
    Text(Result<TextInput, Wrong>),
}

/// Reads an item, or all texts where they are not in a list.
struct ItemVisitor;

impl<'de> Visitor<'de> for ItemVisitor {
    type Value = Item;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text or token ids")
    }

    fn visit_u64<E>(self, number: u64) -> Result<Item, E> {
        Ok(Item::Id(Id::from_number(number)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Item, E> {
        Ok(Item::Id(Id::from_number(number)))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Item, E> {
        Ok(Item::Id(Id(Err(NoTokenId(number.to_string())))))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Item, E> {
        self.visit_string(text.to_owned())
    }

    fn visit_string<E>(self, text: String) -> Result<Item, E> {
        Ok(Item::Text(Ok(TextInput::Text(text))))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Item, E> {
        Ok(Item::Text(Err(Wrong::NoText)))
    }

    fn visit_unit<E>(self) -> Result<Item, E> {
        Ok(Item::Text(Err(Wrong::NoText)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Item, A::Error> {
        Ok(Item::Text(ids(None, seq)?.map(TextInput::Tokens).map_err(Wrong::NoTokenId)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Item, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Item::Text(Err(Wrong::NoText)))
    }
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ItemVisitor)
    }
}

impl<'de, const MOST: usize> Deserialize<'de> for Texts<MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextsVisitor::<MOST>)
    }
}

struct TextsVisitor<const MOST: usize>;

impl<'de, const MOST: usize> Visitor<'de> for TextsVisitor<MOST> {
    type Value = Texts<MOST>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text, a list of texts, a list of token ids or a list of such lists")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        self.visit_string(text.to_owned())
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Texts(Ok(vec![TextInput::Text(text)])))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let texts = match seq.next_element()? {
            None => Ok(Vec::new()),
            Some(Item::Id(Id(Ok(first)))) => {
                let ids = ids(Some(first), seq)?;
                ids.map(|ids| vec![TextInput::Tokens(ids)]).map_err(Wrong::NoTokenId)
            }
            Some(Item::Id(Id(Err(error)))) => skip(seq, Wrong::NoTokenId(error))?,
            Some(Item::Text(first)) => texts(first, seq, MOST)?,
        };
        Ok(Texts(texts))
    }
}

/// The texts of a list that begins with this one.
fn texts<'de, A: SeqAccess<'de>>(
    first: Result<TextInput, Wrong>,
    mut seq: A,
    most: usize,
) -> Result<Result<Vec<TextInput>, Wrong>, A::Error> {
    let mut all = Vec::new();
    let mut next = Some(Item::Text(first));
    while let Some(item) = next {
        match item {
            Item::Text(Ok(text)) => all.push(text),
            Item::Text(Err(wrong)) => return skip(seq, wrong),
            Item::Id(_) => return skip(seq, Wrong::NoText),
        }
        if all.len() > most {
            let mut count = all.len();
            drop(all);
            while seq.next_element::<IgnoredAny>()?.is_some() {
                count += 1;
            }
            return Ok(Err(Wrong::TooMany(count)));
        }
        next = seq.next_element()?;
    }
    Ok(Ok(all))
}

/// Reads a list to its end without keeping it.
fn skip<'de, T, A: SeqAccess<'de>>(mut seq: A, wrong: Wrong) -> Result<Result<T, Wrong>, A::Error> {
    while seq.next_element::<IgnoredAny>()?.is_some() {}
    Ok(Err(wrong))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(json: &serde_json::Value) -> Result<Vec<TextInput>, RequestError> {
        serde_json::from_str::<Texts<3>>(&json.to_string()).expect("JSON").read("input")
    }

    #[test]
    fn texts_come_in_four_forms() {
        let text = |text: &str| TextInput::Text(text.into());
        let tokens = |ids: &[u32]| TextInput::Tokens(ids.into());
        assert_eq!(read(&json!("a")), Ok(vec![text("a")]));
        assert_eq!(read(&json!(["a", "b"])), Ok(vec![text("a"), text("b")]));
        assert_eq!(read(&json!([1, 2])), Ok(vec![tokens(&[1, 2])]));
        assert_eq!(read(&json!([[1], [2, 3]])), Ok(vec![tokens(&[1]), tokens(&[2, 3])]));
        assert_eq!(read(&json!(["a", [1]])), Ok(vec![text("a"), tokens(&[1])]));
        assert_eq!(read(&json!([])), Ok(vec![]));
    }

    #[test]
    fn what_is_no_text_is_an_error_about_the_field() {
        for (bad, told) in [
            (json!([true]), "a list of texts"),
            (json!([{"a": [1, 2]}, "b"]), "a list of texts"),
            (json!(["a", 1]), "a list of texts"),
            (json!([1, "a"]), "a text is no token id"),
            (json!([[1, -1], [2]]), "-1 is no token id"),
            (json!([0.5, 1]), "0.5 is no token id"),
            (json!([[], [], [], [], []]), "5 texts are more than the 3"),
            (json!(["a", "b", "c", "d"]), "4 texts are more than the 3"),
        ] {
            let error = read(&bad).expect_err("no text");
            assert!(error.message.contains(told), "{bad}: {}", error.message);
            assert_eq!(error.field.as_deref(), Some("input"));
        }
        assert!(serde_json::from_str::<Texts<3>>("null").is_err());
        assert!(serde_json::from_str::<Texts<3>>("{}").is_err());
    }
}
