//! Settings, from the environment.

use kumi_coherence::{Migration, Protocol};

use crate::error::Error;
use crate::node_memory::UnitSize;
use crate::view::Mechanism;

/// When a node makes the twin of a page of another node, with which it is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Twins {
    /// When it comes: the first write costs nothing.
    #[default]
    Eager,
    /// At its first write, which costs a signal: pages that are only read take half the memory.
    Lazy,
}

/// Settings of a job's shared memory. All ranks have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Bytes of address space, a multiple of the page. Memory comes with use.
    pub bytes: u64,
    /// Bytes of a page: a multiple of the machine's pages, at most 64 KiB.
    pub page_bytes: u32,
    /// How faults are caught; `None` for the best that the kernel has.
    pub mechanism: Option<Mechanism>,
    /// What a lock makes visible.
    pub protocol: Protocol,
    /// Whether pages move to the node that writes them.
    pub migration: Migration,
    /// When twins are made.
    pub twins: Twins,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            bytes: 64 << 30,
            page_bytes: 4096,
            mechanism: None,
            protocol: Protocol::Scope,
            migration: Migration::SingleWriter,
            twins: Twins::Eager,
        }
    }
}

impl Config {
    /// Reads `KUMI_DSM_BYTES`, `KUMI_DSM_PAGE`, `KUMI_DSM_FAULTS`, `KUMI_DSM_PROTOCOL`, `KUMI_DSM_HOMES` and
    /// `KUMI_DSM_TWINS`.
    ///
    /// # Errors
    /// [`Error::Setting`], [`Error::Memory`].
    pub fn from_environment() -> Result<Config, Error> {
        Config::from_variables(|name| std::env::var(name).ok())
    }

    /// As [`Config::from_environment`], from these variables.
    ///
    /// # Errors
    /// As [`Config::from_environment`].
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Config, Error> {
        let mut config = Config::default();
        if let Some(value) = variable("KUMI_DSM_PAGE") {
            let wanted = "bytes, such as 4096, 16384 or 65536";
            let bytes = bytes(&value).and_then(|bytes| u32::try_from(bytes).ok());
            config.page_bytes = bytes.ok_or(wrong("KUMI_DSM_PAGE", &value, wanted))?;
        }
        UnitSize::new(config.page_bytes)?;
        if let Some(value) = variable("KUMI_DSM_BYTES") {
            let wanted = "bytes, such as 8G or 512M";
            config.bytes = bytes(&value).ok_or(wrong("KUMI_DSM_BYTES", &value, wanted))?;
        }
        config.bytes = config.bytes.next_multiple_of(config.page_bytes.into());
        if let Some(value) = variable("KUMI_DSM_FAULTS") {
            let wanted = "userfault or mprotect";
            let mechanism = value.parse().map_err(|_| wrong("KUMI_DSM_FAULTS", &value, wanted))?;
            config.mechanism = Some(mechanism);
        }
        if let Some(value) = variable("KUMI_DSM_PROTOCOL") {
            config.protocol = match value.as_str() {
                "scope" => Protocol::Scope,
                "lazy" => Protocol::Lazy,
                _ => return Err(wrong("KUMI_DSM_PROTOCOL", &value, "scope or lazy")),
            };
        }
        if let Some(value) = variable("KUMI_DSM_HOMES") {
            config.migration = match value.as_str() {
                "move" => Migration::SingleWriter,
                "stay" => Migration::Never,
                _ => return Err(wrong("KUMI_DSM_HOMES", &value, "move or stay")),
            };
        }
        if let Some(value) = variable("KUMI_DSM_TWINS") {
            config.twins = match value.as_str() {
                "eager" => Twins::Eager,
                "lazy" => Twins::Lazy,
                _ => return Err(wrong("KUMI_DSM_TWINS", &value, "eager or lazy")),
            };
        }
        Ok(config)
    }
}

fn wrong(name: &'static str, value: &str, wanted: &'static str) -> Error {
    Error::Setting { name, value: value.to_owned(), wanted }
}

/// Bytes, with K, M or G for powers of 1,024.
fn bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.char_indices().last()? {
        (at, 'K' | 'k') => (&text[..at], 10),
        (at, 'M' | 'm') => (&text[..at], 20),
        (at, 'G' | 'g') => (&text[..at], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_wrong_ones_named() {
        let from = |name: &'static str, value: &'static str| {
            Config::from_variables(move |asked| (asked == name).then(|| value.to_owned()))
        };
        let good = |name, value| from(name, value).expect("good");
        assert_eq!(good("KUMI_DSM_BYTES", "3M").bytes, 3 << 20);
        assert_eq!(good("KUMI_DSM_BYTES", "5000").bytes, 8192);
        assert_eq!(good("KUMI_DSM_PAGE", "16K").page_bytes, 16384);
        assert_eq!(good("KUMI_DSM_FAULTS", "mprotect").mechanism, Some(Mechanism::Protect));
        assert_eq!(good("KUMI_DSM_PROTOCOL", "lazy").protocol, Protocol::Lazy);
        assert_eq!(good("KUMI_DSM_HOMES", "stay").migration, Migration::Never);
        assert_eq!(good("KUMI_DSM_TWINS", "lazy").twins, Twins::Lazy);
        for name in ["BYTES", "PAGE", "FAULTS", "PROTOCOL", "HOMES", "TWINS"] {
            let name: &'static str = format!("KUMI_DSM_{name}").leak();
            for value in ["", "0", "twelve", "9999999999999G"] {
                let error = from(name, value).expect_err(value).to_string();
                assert!(error.contains(name) || name == "KUMI_DSM_PAGE", "{error}");
            }
        }
        assert!(from("KUMI_DSM_PAGE", "5000").is_err(), "no multiple of the machine's pages");
    }
}
