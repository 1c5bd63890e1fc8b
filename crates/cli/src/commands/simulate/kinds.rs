//! A kind of request on the command line: `CLASS,WEIGHT,PROMPT,ANSWER`.

use ropeway_testkit::simulate::workload::{Kind, Length};

use super::{class, positive};

/// How often it comes, and what it is.
pub fn parse(text: &str) -> Result<(f64, Kind), String> {
    let parts: Vec<_> = text.split(',').collect();
    let [name, weight, prompt, answer] = parts[..] else {
        return Err("four parts, as in interactive,5,85,64".into());
    };
    let class =
        class(name).ok_or_else(|| format!("no class {name:?}; there are interactive, default and bulk"))?;
    let length =
        |text: &str| text.parse().map(Length::around).map_err(|_| format!("{text:?} is no number of tokens"));
    let kind = Kind { class, count: 1, shared: 0, prompt: length(prompt)?, answer: length(answer)? };
    Ok((positive(weight)?, kind))
}

#[cfg(test)]
mod tests {
    use ropeway_engine::Class;

    use super::*;

    #[test]
    fn a_kind_has_four_parts_and_says_which_is_wrong() {
        let (weight, kind) = parse("bulk,2.5,800,100").unwrap();
        assert!((weight - 2.5).abs() < 1e-9 && (kind.prompt.median - 800.0).abs() < 1e-9);
        assert_eq!(kind.class, Class::Bulk);
        for (text, reason) in
            [("bulk,1,2", "four parts"), ("big,1,2,3", "interactive"), ("bulk,1,x,3", "tokens")]
        {
            assert!(parse(text).unwrap_err().contains(reason), "{text}");
        }
    }
}
