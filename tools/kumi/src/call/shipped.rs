//! Shipped interface descriptions as arguments.

use super::check::read;
use crate::error::Error;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use kumi_call::shipped::{SHIPPED, ShippedInterfaces, shipped};
use std::path::PathBuf;

/// Option for shipped descriptions.
#[derive(Clone, Debug, Args)]
pub struct ShippedArgs {
    /// Descriptions that come with Kumi. Servers bind those of BLAS and LAPACK to OpenBLAS when they start.
    /// Routines of FFTW and demonstrations must be built first (`kumi call build`)
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = names())]
    pub shipped: Vec<&'static ShippedInterfaces>,
}

fn names() -> impl TypedValueParser<Value = &'static ShippedInterfaces> {
    PossibleValuesParser::new(SHIPPED.iter().map(|shipped| shipped.name))
        .try_map(|name| shipped(&name).ok_or("no shipped description has this name"))
}

impl ShippedArgs {
    /// Names and texts of their files.
    pub fn files(&self) -> impl Iterator<Item = (PathBuf, &'static [u8])> {
        let files = self.shipped.iter().flat_map(|shipped| shipped.files);
        files.map(|(name, text)| (PathBuf::from(name), text.as_bytes()))
    }

    /// The texts of these files, then those of the shipped descriptions.
    pub fn beside(&self, files: &[PathBuf]) -> Result<Vec<(PathBuf, Vec<u8>)>, Error> {
        let given = files.iter().map(|path| Ok((path.clone(), read(path)?)));
        given.chain(self.files().map(|(path, text)| Ok((path, text.to_vec())))).collect()
    }
}
