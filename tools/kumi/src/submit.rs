//! `kumi submit`: submits a job or an array of jobs, and does not stay.

use crate::context::Context;
use crate::error::Error;
use crate::run::program::JobProgram;
use crate::run::{self, JobArgs};
use crate::{output, parse, patience};
use clap::Args;
use kumi_control::batch::{ArrayIndices, MOST_CONTENT};
use kumi_control::message::{ClientReply, ClientRequest, JobRequest};
use std::io::{IsTerminal, Read};
use std::path::Path;

/// `kumi submit`
#[derive(Clone, Debug, Args)]
pub struct SubmitArgs {
    #[command(flatten)]
    pub job: JobArgs,
    /// Submit a job for each of these indices, with the index in KUMI_ARRAY_INDEX: 1-100, or 1,3,5-9, or 0-20:5 for each
    /// fifth one; with %10 behind them for at most ten jobs at a time
    #[arg(long, value_name = "INDICES[%N]", value_parser = parse::array)]
    pub array: Option<ArrayIndices>,
    /// The program or script and its arguments; - for a script on standard input, as without a program if that is no
    /// terminal. Lines at the head of a script that begin with #KUMI are options, too
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub command: Vec<String>,
    /// The script that came on standard input.
    #[arg(skip)]
    pub input: Option<Vec<u8>>,
}

/// Runs the command.
pub async fn run(context: &Context, args: SubmitArgs) -> Result<(), Error> {
    let SubmitArgs { job, array, command, input } = args;
    // Before anything is read: without a cluster there is nothing to do.
    let mut client = context.connect().await?;
    let program = match &input {
        Some(script) => JobProgram::of_input(command, script),
        None => JobProgram::to_submit(command)?,
    };
    let mut request = run::request(context, job, program, None)?;
    request.batch.content = match input {
        Some(script) => Some(script),
        None => content(&request)?,
    };
    let request = in_words_of_all(Box::new(request), array);
    // The same token finds the same job, however often it is submitted.
    let accepted = patience::ask(context, &mut client, &request, |reply| match reply {
        ClientReply::Accepted { first, last } => Some(Ok((first, last))),
        ClientReply::Note(text) => {
            output::note(&text);
            None
        }
        other => Some(Err(Error::unexpected(&other))),
    });
    let (first, last) = accepted.await??;
    output::text(&match first == last {
        true => format!("{first}\n"),
        false => format!("{first}-{last}\n"),
    })
}

/// The request. Of an array heads of the version before know ranges only.
fn in_words_of_all(request: Box<JobRequest>, array: Option<ArrayIndices>) -> ClientRequest {
    let range = array.as_ref().map(ArrayIndices::as_range);
    match (range, array) {
        (Some(None), Some(indices)) => ClientRequest::SubmitArray { request, indices },
        (range, _) => ClientRequest::SubmitBatch { request, array: range.flatten() },
    }
}

/// The program itself, if it is small: scripts may change or go before their job starts.
fn content(request: &JobRequest) -> Result<Option<Vec<u8>>, Error> {
    if request.program.size > MOST_CONTENT as u64 {
        return Ok(None);
    }
    let path = Path::new(&request.program.path);
    let data = std::fs::read(path).map_err(|source| Error::File {
        doing: "read",
        path: path.to_owned(),
        source,
    })?;
    if *blake3::hash(&data).as_bytes() != request.program.hash.0 {
        return Err(Error::Usage(format!("{} changed meanwhile; submit it again", path.display())));
    }
    Ok(Some(data))
}

/// The script on standard input, if this command means that.
///
/// # Errors
/// There is none, or it is too long to go with a request.
pub fn script_on_input(command: &[String]) -> Result<Option<Vec<u8>>, Error> {
    let input = std::io::stdin();
    match command.first().map(String::as_str) {
        None if input.is_terminal() => Err(Error::Usage(
            "name a program or a script; `kumi submit --help` says more".to_owned(),
        )),
        None | Some("-") => script_from(input.lock()).map(Some),
        Some(_) => Ok(None),
    }
}

fn script_from(input: impl Read) -> Result<Vec<u8>, Error> {
    let mut script = Vec::new();
    let most = MOST_CONTENT as u64;
    input.take(most + 1).read_to_end(&mut script).map_err(|source| Error::File {
        doing: "read",
        path: "standard input".into(),
        source,
    })?;
    if !script.starts_with(b"#!") {
        let message = "on standard input is no script, whose first line begins with #!, as #!/bin/sh; give one, or name a program";
        return Err(Error::Usage(message.to_owned()));
    }
    if script.len() > MOST_CONTENT {
        let message = format!(
            "the script on standard input is longer than {} KiB; write it to a file that all nodes have, and name that",
            MOST_CONTENT >> 10
        );
        return Err(Error::Usage(message));
    }
    Ok(script)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_input_has_to_be_a_script_that_goes_with_a_request() {
        let longest = [b"#!/bin/sh\n".to_vec(), vec![b'#'; MOST_CONTENT - 10]].concat();
        assert_eq!(script_from(&longest[..]).unwrap(), longest);
        for (text, says) in [
            (Vec::new(), "#!/bin/sh"),
            (b"echo\n".to_vec(), "#!/bin/sh"),
            ([longest, vec![b'#']].concat(), "256 KiB"),
        ] {
            let error = script_from(&text[..]).unwrap_err();
            assert_eq!(error.exit_code(), 64);
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
