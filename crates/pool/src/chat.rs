//! Conversations at servers that keep their tokens to themselves: a job as the body of an OpenAI chat completion, and the
//! answer's chunks as events.
