//! How many tokens a prompt or an answer has.

use std::fmt;
use std::str::FromStr;

use ropeway_testkit::rng::Rng;

/// Longest prompt or answer that is made up: beyond every model's context.
const MOST: usize = 10_000_000;

/// Standard deviation of the logarithm unless told: as people write, most are short and a few much longer.
const SPREAD: f64 = 0.8;

/// A distribution of lengths, in tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    Fixed(usize),
    /// From the first to the second, both included.
    Uniform(usize, usize),
    LogNormal {
        median: usize,
        spread: f64,
    },
}

impl Length {
    pub fn draw(self, rng: &mut Rng) -> usize {
        match self {
            Length::Fixed(tokens) => tokens,
            Length::Uniform(least, most) => rng.between(least, most),
            Length::LogNormal { median, spread } => {
                (rng.length(median as f64, spread).round() as usize).clamp(1, MOST)
            }
        }
    }
}

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Length, String> {
        parse(text).ok_or_else(|| {
            "give tokens as 100, uniform:50-200 or lognormal:100 (lognormal:100,0.8 says how far they spread)".into()
        })
    }
}

fn parse(text: &str) -> Option<Length> {
    let count = |text: &str| text.parse().ok().filter(|count| (1..=MOST).contains(count));
    match text.split_once(':') {
        None => Some(Length::Fixed(count(text)?)),
        Some(("fixed", tokens)) => Some(Length::Fixed(count(tokens)?)),
        Some(("uniform", ends)) => {
            let (least, most) = ends.split_once('-')?;
            let (least, most) = (count(least)?, count(most)?);
            (least <= most).then_some(Length::Uniform(least, most))
        }
        Some(("lognormal", shape)) => {
            let (median, spread) = shape.split_once(',').map_or((shape, None), |(m, s)| (m, Some(s)));
            let spread = spread.map_or(Some(SPREAD), |spread| spread.parse().ok())?;
            let sensible = (0.0..=5.0).contains(&spread);
            sensible.then_some(Length::LogNormal { median: count(median)?, spread })
        }
        Some(_) => None,
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Length::Fixed(tokens) => write!(f, "{tokens}"),
            Length::Uniform(least, most) => write!(f, "uniform:{least}-{most}"),
            Length::LogNormal { median, spread } => write!(f, "lognormal:{median},{spread}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_distribution_is_read_as_it_is_written() {
        for text in ["100", "uniform:50-200", "lognormal:100,0.5"] {
            assert_eq!(text.parse::<Length>().unwrap().to_string(), text);
        }
        assert_eq!("lognormal:64".parse(), Ok(Length::LogNormal { median: 64, spread: SPREAD }));
        for text in ["", "0", "-1", "uniform:5", "uniform:9-3", "lognormal:x", "lognormal:9,NaN", "zipf:3"] {
            assert!(text.parse::<Length>().unwrap_err().contains("uniform:50-200"), "{text}");
        }
    }

    #[test]
    fn lengths_are_drawn_as_the_distribution_says() {
        let mut rng = Rng::new(3);
        let mut draw = |text: &str| {
            let length: Length = text.parse().unwrap();
            let mut drawn: Vec<_> = (0..2000).map(|_| length.draw(&mut rng)).collect();
            drawn.sort_unstable();
            (drawn[0], drawn[1000], drawn[1999])
        };
        assert_eq!(draw("7"), (7, 7, 7));
        let (least, _, most) = draw("uniform:10-20");
        assert_eq!((least, most), (10, 20));
        let (least, median, most) = draw("lognormal:100");
        assert!((90..110).contains(&median) && least < 30 && most > 500, "{least} {median} {most}");
    }
}
