//! Token ids that a client sends, read without a JSON tree: an id takes four bytes.

use std::fmt;

use ropeway_generation::RequestError;
use ropeway_text::PackedTokens;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

/// A list of token ids, or the first thing in it that is none.
///
/// A wrong item is remembered and the rest of the list is skipped, so that the error can name the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenList(pub(crate) Result<Vec<u32>, NoTokenId>);

/// What stood where a token id was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoTokenId(pub(crate) String);

impl TokenList {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_ok_and(Vec::is_empty)
    }

    /// The ids; errors are about `field`.
    pub fn read(self, field: &str) -> Result<Vec<u32>, RequestError> {
        self.0.map_err(|error| error.about(field))
    }
}

impl NoTokenId {
    pub(crate) fn about(&self, field: &str) -> RequestError {
        RequestError::invalid(format!("{} is no token id", self.0)).at(field)
    }
}

impl<'de> Deserialize<'de> for TokenList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = TokenList;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of token ids")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<TokenList, A::Error> {
                ids(None, seq).map(TokenList)
            }
        }
        deserializer.deserialize_seq(List)
    }
}

/// The ids of a list after the one already read. Packed until their number is known: the shortest id has two bytes in a body
/// (`0,`), and a list must not take more than a few times the bytes it came in.
pub(crate) fn ids<'de, A: SeqAccess<'de>>(
    first: Option<u32>,
    mut seq: A,
) -> Result<Result<Vec<u32>, NoTokenId>, A::Error> {
    let mut ids: PackedTokens = first.into_iter().collect();
    while let Some(Id(id)) = seq.next_element()? {
        match id {
            Ok(id) => ids.push(id),
            Err(error) => {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(Err(error));
            }
        }
    }
    Ok(Ok(ids.into_vec()))
}

/// One item of a list of ids.
pub(crate) struct Id(pub(crate) Result<u32, NoTokenId>);

impl Id {
    pub(crate) fn from_number<N: TryInto<u32> + fmt::Display + Copy>(number: N) -> Self {
        Self(number.try_into().map_err(|_| NoTokenId(number.to_string())))
    }

    fn wrong(what: impl Into<String>) -> Self {
        Self(Err(NoTokenId(what.into())))
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Item;
        impl<'de> Visitor<'de> for Item {
            type Value = Id;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a token id")
            }

            fn visit_u64<E>(self, number: u64) -> Result<Id, E> {
                Ok(Id::from_number(number))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Id, E> {
                Ok(Id::from_number(number))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Id, E> {
                Ok(Id::wrong(number.to_string()))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Id, E> {
                Ok(Id::wrong(value.to_string()))
            }

            fn visit_unit<E>(self) -> Result<Id, E> {
                Ok(Id::wrong("null"))
            }

            fn visit_str<E>(self, _: &str) -> Result<Id, E> {
                Ok(Id::wrong("a text"))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Id, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Id::wrong("a list"))
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Id, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Id::wrong("an object"))
            }
        }
        deserializer.deserialize_any(Item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Vec<u32>, RequestError> {
        serde_json::from_str::<TokenList>(json).expect("JSON").read("tokens")
    }

    #[test]
    fn ids_are_numbers_of_32_bits_and_the_first_that_is_not_is_named() {
        assert_eq!(read("[]"), Ok(vec![]));
        assert_eq!(read("[0, 7, 4294967295]"), Ok(vec![0, 7, u32::MAX]));
        for (json, named) in [
            ("[1, -1, 2]", "-1"),
            ("[1.5]", "1.5"),
            ("[4294967296]", "4294967296"),
            ("[true]", "true"),
            ("[null]", "null"),
            ("[\"x\"]", "a text"),
            ("[[1], {\"a\": 1}]", "a list"),
            ("[{\"a\": [1]}, 2]", "an object"),
        ] {
            let error = read(json).expect_err(json);
            assert_eq!(error.message, format!("{named} is no token id"));
            assert_eq!(error.field.as_deref(), Some("tokens"));
        }
        assert!(serde_json::from_str::<TokenList>("{}").is_err());
    }

    #[test]
    fn a_long_list_has_no_room_to_spare() {
        let json = format!("[{}0]", "0,".repeat(100_000));
        let ids = read(&json).expect("ids");
        assert_eq!(ids.len(), 100_001);
        assert_eq!(ids.capacity(), ids.len());
    }
}
