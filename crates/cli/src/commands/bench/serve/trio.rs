//! What an agent sends at once, over HTTP: every prompt alone, then all together, the longest first so that the short
//! ones have to overtake it.

use super::ask::{Answer, Ask};
use super::client::Fault;
use super::load::{Round, Sender};
use super::prompts::Prompts;
use crate::commands::bench::trio::{Prompt, Runs, Timed, Trio};

/// Prompts of these lengths, measured `repeat` times; `None` if Ctrl-C came before anything was known.
pub async fn measure(
    sender: &Sender,
    prompts: &mut Prompts<'_>,
    lengths: &[usize],
    new_tokens: usize,
    repeat: usize,
) -> Result<Option<Trio>, Fault> {
    let mut lengths = lengths.to_vec();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    let mut alone = vec![Runs::default(); lengths.len()];
    let mut together = alone.clone();
    for _ in 0..repeat {
        for (tokens, runs) in lengths.iter().zip(&mut alone) {
            let ask = prompts.ask(*tokens, new_tokens).await?;
            let Some(answer) = one(sender.at_once(vec![ask], 1).await)? else { return Ok(None) };
            runs.add(timed(&answer));
        }
        let mut asks = Vec::new();
        for tokens in &lengths {
            asks.push(prompts.ask(*tokens, new_tokens).await?);
        }
        for (answer, runs) in in_company(sender, asks).await.into_iter().zip(&mut together) {
            let Some(answer) = one(answer)? else { return Ok(None) };
            runs.add(timed(&answer));
        }
    }
    let both = alone.into_iter().zip(together);
    let prompts = lengths.into_iter().zip(both).filter(|(_, (_, together))| !together.is_empty());
    let prompts = prompts.map(|(tokens, (alone, together))| Prompt::of(tokens, alone, together));
    Ok(Some(Trio { new_tokens, prompts: prompts.collect(), longest_step_ms: None }))
}

/// All of them, begun in order.
async fn in_company(sender: &Sender, asks: Vec<Ask>) -> Vec<Round> {
    let tasks: Vec<_> = asks
        .into_iter()
        .map(|ask| {
            let sender = sender.clone();
            tokio::spawn(async move { sender.at_once(vec![ask], 1).await })
        })
        .collect();
    let mut rounds = Vec::new();
    for task in tasks {
        rounds.push(task.await.unwrap_or_default());
    }
    rounds
}

/// The only answer of a round; `None` after Ctrl-C.
fn one(round: Round) -> Result<Option<Answer>, Fault> {
    round.faults.into_iter().next().map_or(Ok(round.answers.into_iter().next()), Err)
}

fn timed(answer: &Answer) -> Timed {
    Timed {
        first_token: answer.first_token.as_secs_f64(),
        total: answer.total.as_secs_f64(),
        longest_gap: answer.gaps.iter().copied().fold(0.0, f64::max),
    }
}
