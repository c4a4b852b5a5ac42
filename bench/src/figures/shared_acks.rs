//! Programs over shared memory with fewer acks and with one for each message: packets and time (Nakada et al., figures 8 to 12
//! of the paper on reduced acks).

use super::Setting;
use super::shared_jobs::{self, Job, PROGRAMS};
use crate::cluster::Cluster;
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};

const NAME: &str = "acks per message";

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let numbers: &[u32] = if setting.scaled { &[2, 4, 8, 16] } else { &[2, 4] };
    let mut records = Vec::new();
    for number in numbers {
        // A page and its header fit a packet, as in the source of this figure.
        let cluster = Cluster::up(*number, &["--mtu", "9000"])?;
        for program in &PROGRAMS {
            let mut columns = [Columns::default(), Columns::default()];
            for _ in 0..runs {
                for (ack, column) in ["reduced", "per-message"].into_iter().zip(&mut columns) {
                    let run = ["--ack", ack];
                    let job = Job {
                        run: &run,
                        more: &["--statistics"],
                        ..Job::shared(&cluster, setting, program)
                    };
                    column.add(&job.output()?, program.name)?;
                }
            }
            let name = format!("{} {}, {number} nodes", program.name, program.size(setting));
            records.extend(of_columns(&name, &columns));
        }
    }
    Ok(records)
}

/// What the runs of a program with one kind of acks have told.
#[derive(Default)]
struct Columns {
    seconds: Vec<f64>,
    /// All packets of all ranks, for each page that came by a request: an answer may have several.
    packets: Vec<f64>,
}

impl Columns {
    fn add(&mut self, output: &str, name: &str) -> Result<(), BenchError> {
        self.seconds.push(shared_jobs::seconds(output, name)?);
        let of = |name| shared_jobs::counter(output, name);
        // A program may get by without one.
        self.packets.push(of("packets")? / of("pages")?.max(1.0));
        Ok(())
    }
}

fn of_columns(name: &str, columns: &[Columns; 2]) -> [Record; 2] {
    let [reduced, each] = columns;
    let packets = Peer::Measured(NAME, &each.packets);
    let seconds = Peer::Measured(NAME, &each.seconds);
    let figure = format!("packets for each page, {name}");
    [
        Record::new(&figure, "packets", &reduced.packets, &packets, Goal::None),
        Record::new(name, "s", &reduced.seconds, &seconds, Goal::None),
    ]
}
