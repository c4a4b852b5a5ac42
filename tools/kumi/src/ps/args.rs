//! Options of `kumi ps`.

use super::columns::{COLUMNS, Column};
use crate::context::Context;
use crate::error::Error;
use clap::Args;
use kumi_control::message::{JobsQuery, StateKind};
use kumi_sched::NodeId;

/// `kumi ps`
#[derive(Clone, Debug, Args)]
pub struct PsArgs {
    /// Also list the jobs that are over
    #[arg(short, long)]
    pub all: bool,
    /// Only list jobs of this user: a name or a number
    #[arg(short, long, value_name = "USER")]
    pub user: Option<String>,
    /// Only list jobs to which this applies: state=WORD, name=TEXT or node=NODE; may be repeated. Several states are
    /// alternatives; everything else has to apply
    #[arg(long = "filter", value_name = "KEY=VALUE", value_parser = filter)]
    pub filters: Vec<Filter>,
    /// Columns of the table, in this order, by their names without spaces: job,name,state
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', value_parser = column, conflicts_with = "json")]
    pub format: Vec<String>,
    /// Leave out the line of headings
    #[arg(long, conflicts_with = "json")]
    pub no_headings: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What a job has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// In this state.
    State(StateKind),
    /// With this in its name.
    Name(String),
    /// On this node, by name or number.
    Node(String),
}

fn filter(text: &str) -> Result<Filter, String> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    match key {
        "state" => {
            let state = StateKind::ALL.into_iter().find(|state| state.name() == value);
            let words: Vec<&str> = StateKind::ALL.into_iter().map(StateKind::name).collect();
            state
                .map(Filter::State)
                .ok_or_else(|| format!("a state is one of {}", words.join(", ")))
        }
        "name" if !value.is_empty() => Ok(Filter::Name(value.to_owned())),
        "node" if !value.is_empty() => Ok(Filter::Node(value.to_owned())),
        _ => Err("write state=WORD, name=TEXT or node=NODE".to_owned()),
    }
}

fn column(text: &str) -> Result<String, String> {
    if COLUMNS.iter().any(|column| column.name == text) {
        return Ok(text.to_owned());
    }
    let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
    Err(format!("the columns are {}", names.join(", ")))
}

impl PsArgs {
    /// The jobs that are asked for.
    ///
    /// # Errors
    /// The cluster has no such node, or a name or node is asked for twice.
    pub fn query(&self, context: &Context) -> Result<JobsQuery, Error> {
        let mut query = JobsQuery { user: self.user.clone(), ..JobsQuery::first_page(self.all) };
        for filter in &self.filters {
            let twice = match filter {
                Filter::State(state) => {
                    query.states.push(*state);
                    false
                }
                Filter::Name(name) => query.name.replace(name.clone()).is_some(),
                Filter::Node(name) => query.node.replace(node(context, name)?).is_some(),
            };
            if twice {
                return Err(Error::Usage("only states may be named more than once".to_owned()));
            }
        }
        // Who asks for jobs that are over gets them.
        query.live &= !query.states.contains(&StateKind::Ended);
        Ok(query)
    }

    /// The columns that are asked for; none: the usual ones.
    pub fn columns(&self) -> Option<Vec<&'static Column>> {
        let columns: &'static [Column] = &COLUMNS;
        let named = |name: &String| columns.iter().find(|column| column.name == name);
        (!self.format.is_empty()).then(|| self.format.iter().filter_map(named).collect())
    }
}

/// The node of this name or number.
fn node(context: &Context, name: &str) -> Result<NodeId, Error> {
    let places = context.places();
    let named = places.iter().position(|place| place.name == name);
    let number = named.or_else(|| name.parse().ok().filter(|&number| number < places.len()));
    let number = number.and_then(|number| u32::try_from(number).ok());
    number.map(NodeId).ok_or_else(|| {
        Error::Usage(format!("the cluster has no node '{name}'; `kumi cluster status` lists them"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn read(words: &str) -> Result<PsArgs, String> {
        match Cli::try_parse_from(words.split(' ')) {
            Ok(Cli { command: Command::Ps(args), .. }) => Ok(args),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn filters_and_columns() {
        let args = read("kumi ps --filter state=ended --filter name=cg -u ada --format state,job")
            .unwrap();
        let expected = [Filter::State(StateKind::Ended), Filter::Name("cg".to_owned())];
        assert_eq!((args.filters.as_slice(), args.user.as_deref()), (&expected[..], Some("ada")));
        let names: Vec<&str> = args.columns().unwrap().iter().map(|column| column.name).collect();
        assert_eq!(names, ["state", "job"]);
        assert!(read("kumi ps").unwrap().columns().is_none());
        for (words, says) in [
            ("--filter state=dead", "one of queued, starting, running, ending, ended"),
            ("--filter weather=bad", "write state=WORD"),
            ("--filter name=", "write state=WORD"),
            ("--format job,nme", "the columns are job, array"),
            ("--format job --json", "cannot be used with"),
        ] {
            let error = read(&format!("kumi ps {words}")).unwrap_err();
            assert!(error.contains(says), "{words}: {error}");
        }
    }
}
