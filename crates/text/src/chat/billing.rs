//! Claude Code's billing line.
//!
//! The first system block that Claude Code sends is, or begins with, a line such as
//!
//! ```text
//! x-anthropic-billing-header: cc_version=2.1.37.3a3; cc_entrypoint=cli; cch=0f3c1;
//! ```
//!
//! It is meant for another server's accounts, not for the model, and `cch` is another in every request: as part of the
//! prompt it would keep every prompt from sharing a prefix with the one before.

const NAME: &str = "x-anthropic-billing-header:";

/// A system block without Claude Code's billing line; any other text as it is. What is left may be empty: leave the block
/// out then.
pub fn without_billing_line(block: &str) -> &str {
    if !block.trim_start().starts_with(NAME) {
        return block;
    }
    let after_line = block.trim_start().split_once('\n').map_or("", |(_, rest)| rest);
    after_line.trim_start_matches(['\r', '\n'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "x-anthropic-billing-header: cc_version=2.1.37.3a3; cc_entrypoint=cli; cch=0f3c1;";

    #[test]
    fn a_block_that_is_only_the_billing_line_is_empty() {
        assert_eq!(without_billing_line(LINE), "");
        assert_eq!(without_billing_line(&format!("{LINE}\n")), "");
    }

    #[test]
    fn requests_that_differ_in_the_billing_line_have_the_same_prompt() {
        let first = format!("{LINE}\n\nYou are Claude Code.\n");
        let second = first.replace("0f3c1", "99999").replace("3a3", "b01");
        assert_eq!(without_billing_line(&first), "You are Claude Code.\n");
        assert_eq!(without_billing_line(&second), without_billing_line(&first));
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        for text in
            ["", " \nYou are", "Explain x-anthropic-billing-header: cch=1;", "x-anthropic-billing\ncch=1;"]
        {
            assert_eq!(without_billing_line(text), text);
        }
    }
}
