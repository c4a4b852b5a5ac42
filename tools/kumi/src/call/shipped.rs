//! Interface descriptions that come with this program, beside those of files.

use super::check::read;
use crate::error::Error;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use kumi_call::shipped::{SHIPPED, ShippedInterfaces, shipped};
use std::path::PathBuf;

/// What is asked for of them.
#[derive(Clone, Debug, Args)]
pub struct ShippedArgs {
    /// Descriptions that come with Kumi: of BLAS and LAPACK (in OpenBLAS), which servers bind when they start; of FFTW
    /// and of demonstrations, to be built first (`kumi call build`)
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = names())]
    pub shipped: Vec<&'static ShippedInterfaces>,
}

fn names() -> impl TypedValueParser<Value = &'static ShippedInterfaces> {
    PossibleValuesParser::new(SHIPPED.iter().map(|shipped| shipped.name))
        .try_map(|name| shipped(&name).ok_or("nothing of this name is shipped"))
}

impl ShippedArgs {
    /// Their files: names and texts.
    pub fn files(&self) -> impl Iterator<Item = (PathBuf, &'static [u8])> {
        let files = self.shipped.iter().flat_map(|shipped| shipped.files);
        files.map(|(name, text)| (PathBuf::from(name), text.as_bytes()))
    }

    /// The texts of these files, and behind them those that are shipped.
    pub fn beside(&self, files: &[PathBuf]) -> Result<Vec<(PathBuf, Vec<u8>)>, Error> {
        let given = files.iter().map(|path| Ok((path.clone(), read(path)?)));
        given.chain(self.files().map(|(path, text)| Ok((path, text.to_vec())))).collect()
    }
}
