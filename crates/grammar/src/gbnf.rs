//! llama.cpp's GBNF as Lark.
//!
//! ```text
//! root ::= "yes" | no-way        start: "yes" | no_way
//! no-way ::= [a-z]+ "!"          no_way: /[a-z]/+ "!"
//! ```
//! Literals, groups, `|`, `*`, `+`, `?` and `{m,n}` are the same in both. GBNF's rules span lines inside of groups, and
//! a comment is `#`.

use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

/// Whether a grammar is GBNF: Lark has no `::=`.
pub(crate) fn is_gbnf(text: &str) -> bool {
    text.contains("::=")
}

/// The same grammar in Lark's syntax, or what is wrong with it.
pub(crate) fn to_lark(text: &str) -> Result<String, String> {
    let mut lark = String::with_capacity(text.len() + 64);
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '"' => literal(&mut rest, &mut lark)?,
            '[' => class(&mut rest, &mut lark)?,
            '.' => lark.push_str("/(.|\\n)/"),
            '#' => while rest.next_if(|next| *next != '\n').is_some() {},
            ':' => {
                if rest.next() != Some(':') || rest.next() != Some('=') {
                    return Err("`:` is only known as part of `::=`".into());
                }
                lark.truncate(lark.trim_end().len());
                lark.push(':');
            }
            '\r' => {}
            '\n' => end_of_line(&mut rest, &mut lark),
            '(' | ')' | '|' | '*' | '+' | '?' | ' ' | '\t' => lark.push(character),
            '{' => {
                lark.push('{');
                while let Some(next) = rest.next_if(|next| next.is_ascii_digit() || matches!(next, ',' | ' '))
                {
                    lark.push(next);
                }
            }
            '}' => lark.push('}'),
            first if first.is_ascii_alphabetic() || first == '_' => name(first, &mut rest, &mut lark),
            other => return Err(format!("{other:?} has no meaning outside of quotes and brackets")),
        }
    }
    Ok(lark)
}

/// A rule goes on in the next line, unless that begins a new one.
fn end_of_line(rest: &mut Peekable<Chars<'_>>, lark: &mut String) {
    while rest.next_if(|next| next.is_whitespace()).is_some() {}
    let line: String = rest.clone().take_while(|next| *next != '\n').collect();
    let head = line.split("::=").next().unwrap_or_default().trim();
    let begins = line.contains("::=") && !head.is_empty() && head.chars().all(is_name);
    lark.push(if begins || line.starts_with('#') { '\n' } else { ' ' });
}

fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '_')
}

/// Rules are lower case in Lark, and know no hyphens; `root` is where it starts.
fn name(first: char, rest: &mut Peekable<Chars<'_>>, lark: &mut String) {
    let mut name = String::from(first);
    while let Some(next) = rest.next_if(|next| is_name(*next)) {
        name.push(next);
    }
    if name == "root" {
        return lark.push_str("start");
    }
    lark.push_str("r_");
    lark.extend(name.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }));
}

fn literal(rest: &mut Peekable<Chars<'_>>, lark: &mut String) -> Result<(), String> {
    let mut text = String::new();
    loop {
        match rest.next().ok_or("a string is not closed")? {
            '"' => break,
            '\\' => text.push(escape(rest)?),
            other => text.push(other),
        }
    }
    lark.push_str(&serde_json::Value::String(text).to_string());
    Ok(())
}

/// `[^a-z\n]` as a regular expression.
fn class(rest: &mut Peekable<Chars<'_>>, lark: &mut String) -> Result<(), String> {
    lark.push_str("/[");
    if rest.next_if_eq(&'^').is_some() {
        lark.push('^');
    }
    loop {
        match rest.next().ok_or("a character class is not closed")? {
            ']' => break,
            '-' => lark.push('-'),
            '\\' => code(escape(rest)?, lark),
            other if other.is_ascii_alphanumeric() => lark.push(other),
            other => code(other, lark),
        }
    }
    lark.push_str("]/");
    Ok(())
}

fn code(character: char, lark: &mut String) {
    let _ = write!(lark, "\\u{{{:x}}}", character as u32);
}

/// What follows a backslash.
fn escape(rest: &mut Peekable<Chars<'_>>) -> Result<char, String> {
    let digits = |rest: &mut Peekable<Chars<'_>>, count: usize| {
        let digits: String = (0..count).map_while(|_| rest.next_if(char::is_ascii_hexdigit)).collect();
        let code = u32::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == count);
        code.and_then(char::from_u32).ok_or("a backslash is followed by no character's number".to_owned())
    };
    match rest.next().ok_or("a backslash at the end")? {
        'n' => Ok('\n'),
        'r' => Ok('\r'),
        't' => Ok('\t'),
        'x' => digits(rest, 2),
        'u' => digits(rest, 4),
        'U' => digits(rest, 8),
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_classes_and_comments_are_translated() {
        let gbnf = "# a list\nroot ::= \"[\" item-one (\",\" item-one)* \"]\"  # end\n\
                    item-one ::= [a-z\\n\"]+ |\n  \"\\x41\\\"\" {2,3}\n";
        let lark = to_lark(gbnf).expect("a grammar");
        let lines: Vec<&str> = lark.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(
            lines,
            [
                r#"start: "[" r_item_one ("," r_item_one)* "]""#,
                r#"r_item_one: /[a-z\u{a}\u{22}]/+ | "A\"" {2,3}"#,
            ]
        );
    }

    #[test]
    fn what_is_not_gbnf_is_named() {
        for (gbnf, problem) in
            [("root ::= \"a", "not closed"), ("root ::= [a", "not closed"), ("root ::= $", "'$'")]
        {
            assert!(to_lark(gbnf).expect_err(gbnf).contains(problem), "{gbnf}");
        }
    }
}
