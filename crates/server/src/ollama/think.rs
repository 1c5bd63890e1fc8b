//! `think`: whether a model thinks before it answers, and how hard.

use ropeway_generation::RequestError;
use serde_json::{Map, Value};

use crate::model::Model;

/// What a client wishes. One that says nothing leaves it to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Think {
    /// It should not.
    Off,
    /// It should.
    On,
    /// It should, this hard: `low`, `medium` or `high`.
    Level(&'static str),
}

impl Think {
    /// Reads `true`, `false` or a level; `null` says nothing.
    pub fn read(given: Option<&Value>) -> Result<Option<Think>, RequestError> {
        let wrong = || {
            let what = "think is true, false, \"low\", \"medium\", \"high\" or \"max\"";
            Err(RequestError::invalid(what).at("think"))
        };
        Ok(Some(match given {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Bool(true)) => Think::On,
            Some(Value::Bool(false)) => Think::Off,
            Some(Value::String(level)) => match level.as_str() {
                "low" => Think::Level("low"),
                "medium" => Think::Level("medium"),
                // Templates know three levels.
                "high" | "max" => Think::Level("high"),
                _ => return wrong(),
            },
            Some(_) => return wrong(),
        }))
    }

    /// Turns down the wish for thoughts that the model can't have.
    pub fn check(wish: Option<Think>, model: &Model) -> Result<(), RequestError> {
        let wants = wish.is_some_and(|think| think != Think::Off);
        if wants && !model.generator.thinks() {
            let what =
                format!("{:?} does not support thinking; leave think out, or set it to false", model.name);
            return Err(RequestError::invalid(what).at("think"));
        }
        Ok(())
    }

    /// Whether thoughts are told apart from the answer.
    pub fn is_told_apart(wish: Option<Think>) -> bool {
        wish != Some(Think::Off)
    }

    /// What templates listen to: most to a switch, some to a level.
    pub fn variables(wish: Option<Think>) -> Map<String, Value> {
        let mut variables = Map::new();
        if let Some(think) = wish {
            variables.insert("enable_thinking".into(), (think != Think::Off).into());
        }
        if let Some(Think::Level(level)) = wish {
            variables.insert("reasoning_effort".into(), level.into());
        }
        variables
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wish_is_a_switch_or_a_level_or_nothing() {
        let read = |given: Value| Think::read(Some(&given));
        assert_eq!(read(json!(null)), Ok(None));
        assert_eq!(read(json!(false)), Ok(Some(Think::Off)));
        assert_eq!(read(json!("max")), Ok(Some(Think::Level("high"))));
        for wrong in [json!("very"), json!(1), json!([])] {
            assert!(read(wrong).is_err());
        }
        let level = Think::variables(Some(Think::Level("low")));
        assert_eq!(Value::from(level), json!({"enable_thinking": true, "reasoning_effort": "low"}));
        assert!(Think::variables(None).is_empty());
    }
}
