//! Other names for served models.

/// Another name for a served model; `*` at the end stands for anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// What clients say.
    pub pattern: String,
    /// What they get.
    pub model: String,
}

impl Alias {
    pub(super) fn covers(&self, name: &str) -> bool {
        match self.pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => self.pattern == name,
        }
    }
}

impl std::str::FromStr for Alias {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((pattern, model)) if !pattern.is_empty() && !model.is_empty() => {
                Ok(Self { pattern: pattern.into(), model: model.into() })
            }
            _ => Err(format!("{text:?} is no alias; write it as 'claude-*=smollm2:135m'")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_covers_a_name_or_a_beginning() {
        let alias: Alias = "claude-*=smollm2:135m".parse().unwrap();
        assert!(alias.covers("claude-sonnet-4-5") && !alias.covers("gpt-4o"));
        assert!("gpt-4o=m".parse::<Alias>().unwrap().covers("gpt-4o"));
        assert!("gpt-4o".parse::<Alias>().is_err());
    }
}
