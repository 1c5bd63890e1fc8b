//! Files that belong together because their names count: `m-00001-of-00003.gguf` and the two that follow.

use crate::manifest::RelativePath;
use crate::quant::Quant;

/// One GGUF model: a file, or all its parts in order.
#[derive(Debug)]
pub(crate) struct Model {
    pub files: Vec<RelativePath>,
}

/// What the name of a part says.
#[derive(Debug, PartialEq, Eq)]
struct Part<'a> {
    /// Everything before the number, and everything after the count.
    model: (&'a str, &'a str),
    number: usize,
    count: usize,
}

impl Model {
    /// Its name, without what tells its parts apart.
    pub(crate) fn name(&self) -> &str {
        let first = self.files[0].as_str();
        Part::of(first).map_or(first, |part| part.model.0)
    }

    /// The quantization its name tells.
    pub(crate) fn quant(&self) -> Option<Quant> {
        Quant::of_file(self.name())
    }
}

impl Part<'_> {
    fn of(name: &str) -> Option<Part<'_>> {
        let (start, end) = name.rsplit_once('.')?;
        let (rest, count) = start.rsplit_once("-of-")?;
        let (model, number) = rest.rsplit_once('-')?;
        let five = |text: &str| (text.len() == 5).then(|| text.parse::<usize>().ok())?;
        Some(Part { model: (model, end), number: five(number)?, count: five(count)? })
    }
}

/// The models that these files are. Parts of which some are missing are no model.
pub(crate) fn models(mut names: Vec<RelativePath>) -> Vec<Model> {
    names.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    let is_first = |name: &&RelativePath| Part::of(name.as_str()).is_none_or(|part| part.number == 1);
    let firsts: Vec<RelativePath> = names.iter().filter(is_first).cloned().collect();
    let models = firsts.iter().map(|first| Model { files: all_of(names.clone(), first) });
    models.filter(|model| is_whole(&model.files)).collect()
}

/// The file, and all others of which it is a part.
pub(crate) fn all_of(names: Vec<RelativePath>, file: &RelativePath) -> Vec<RelativePath> {
    let Some(Part { model, count, .. }) = Part::of(file.as_str()) else { return vec![file.clone()] };
    let belongs = |name: &RelativePath| {
        Part::of(name.as_str()).is_some_and(|part| part.model == model && part.count == count)
    };
    let mut all: Vec<_> = names.into_iter().filter(belongs).collect();
    all.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    all
}

/// Whether no part of any file here is missing.
pub(crate) fn is_whole(files: &[RelativePath]) -> bool {
    files.iter().all(|file| match Part::of(file.as_str()) {
        Some(part) => all_of(files.to_vec(), file).len() == part.count,
        None => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(names: &[&str]) -> Vec<RelativePath> {
        names.iter().map(|name| RelativePath::parse(name).unwrap()).collect()
    }

    #[test]
    fn parts_are_one_model_in_their_order() {
        let names = paths(&[
            "m-Q8_0-00002-of-00002.gguf",
            "m-Q8_0-00001-of-00002.gguf",
            "m-Q4_0.gguf",
            "half-Q6_K-00001-of-00002.gguf",
        ]);
        let found: Vec<_> =
            models(names).iter().map(|m| (m.name().to_owned(), m.files.len(), m.quant())).collect();
        let quant = |name| Quant::parse(name);
        assert_eq!(found, [("m-Q4_0.gguf".into(), 1, quant("Q4_0")), ("m-Q8_0".into(), 2, quant("Q8_0"))]);
    }

    #[test]
    fn shards_of_which_one_is_missing_are_not_whole() {
        let shards = ["config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
        assert!(is_whole(&paths(&shards)));
        assert!(!is_whole(&paths(&shards[..2])));
    }
}
