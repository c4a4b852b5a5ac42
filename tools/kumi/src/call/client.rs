//! `kumi call list` and `kumi call info`: lists the routines of a server, and describes one.

use super::access::AccessArgs;
use super::description::described;
use crate::error::Error;
use crate::output;
use clap::Args;
use kumi_call::Remote;

/// Server and identity.
#[derive(Clone, Debug, Args)]
pub struct ServerArgs {
    /// Server: HOST:PORT, tls://HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDR", env = "KUMI_CALL_SERVER", default_value = "127.0.0.1:7070")]
    pub server: String,
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Options of `kumi call list`.
#[derive(Clone, Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Only names that contain this text
    #[arg(value_name = "PART", default_value = "")]
    pub part: String,
}

/// Options of `kumi call info`.
#[derive(Clone, Debug, Args)]
pub struct InfoArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Name of the routine
    #[arg(value_name = "ROUTINE")]
    pub routine: String,
    /// Print the description as canonical JSON
    #[arg(long)]
    pub json: bool,
}

/// Connects to a server or a metaserver.
pub(super) fn connect(args: &ServerArgs) -> Result<Remote, Error> {
    Ok(Remote::connect(&args.server, &args.access.options()?)?)
}

/// Prints names, one per line.
pub fn list(args: &ListArgs) -> Result<(), Error> {
    let names = connect(&args.server)?.names(&args.part)?;
    output::text(&names.iter().map(|name| format!("{name}\n")).collect::<String>())
}

/// Prints the description of a routine.
pub fn info(args: &InfoArgs) -> Result<(), Error> {
    let known = connect(&args.server)?.interface(&args.routine)?;
    let text = if args.json {
        known.to_json().map(|json| json + "\n").map_err(|error| Error::Usage(error.to_string()))?
    } else {
        described(&known)
    };
    output::text(&text)
}
