//! Page requests: clients on other nodes ask rank 0 with 64 bytes for 4,096, again and again, each with one
//! request in flight. Prints the requests served per second, and the packets of any kind, over all ranks, per
//! request.
#![forbid(unsafe_code)]

use clap::Parser;
use kumi_mem::{Context, Error, Op, Source, Tag};

/// Bytes of a request and of a page.
const REQUEST: usize = 64;
const PAGE: usize = 4_096;
/// Tags of requests and pages.
const ASK: i32 = 1;
const GIVE: i32 = 2;

/// Names of the counters of packets sent.
const KINDS: [&str; 4] = ["data_out", "acks_out", "nacks_out", "probes_out"];

/// Page requests of many clients to rank 0.
#[derive(Parser)]
struct Args {
    /// Clients: ranks on other nodes than rank 0's; further ranks only wait
    #[arg(long, default_value_t = 16)]
    clients: u64,
    /// Requests of each client that are measured
    #[arg(long, default_value_t = 2_000)]
    requests: u64,
    /// Requests of each client before those
    #[arg(long, default_value_t = 100)]
    warm_up: u64,
}

fn main() -> Result<(), Error> {
    let args = Args::parse();
    let context = Context::init()?;
    let far = |rank: &u32| *rank != 0 && !context.same_node(*rank);
    // Rank 0 knows which ranks are far from it.
    let mut clients =
        [if context.rank() == 0 { (0..context.ranks()).filter(far).count() } else { 0 } as u64];
    context.allreduce(Op::Sum, &mut clients)?;
    if clients[0] < args.clients {
        let wanted = args.clients;
        eprintln!(
            "{wanted} clients are asked for, {} ranks are on other nodes than rank 0",
            clients[0]
        );
        std::process::exit(64);
    }
    // The last ranks are the farthest: ranks are placed in order.
    let first = u64::from(context.ranks()) - args.clients;
    let client = u64::from(context.rank()) >= first;
    round(&context, client, args.clients, args.warm_up)?;
    let before = packets(&context);
    let begin = context.time();
    round(&context, client, args.clients, args.requests)?;
    let seconds = context.time() - begin;
    let after = packets(&context);
    let mut sent: Vec<u64> =
        after.iter().zip(before).map(|(after, before)| after - before).collect();
    context.barrier()?;
    context.allreduce(Op::Sum, &mut sent)?;
    if context.rank() == 0 {
        let requests = (args.clients * args.requests) as f64;
        println!("requests_per_second {:.0}", requests / seconds);
        let all: u64 = sent.iter().sum();
        println!("packets_per_request {:.4}", all as f64 / requests);
        for (kind, count) in KINDS.iter().zip(&sent) {
            println!("{kind}_per_request {:.4}", *count as f64 / requests);
        }
    }
    context.finalize()
}

/// Every client sends this many requests and waits for each page; rank 0 serves them all. The last reply ends
/// the run: a barrier would add packets to the count.
fn round(context: &Context, client: bool, clients: u64, requests: u64) -> Result<(), Error> {
    if context.rank() == 0 {
        let (mut ask, page) = ([0; REQUEST], [7; PAGE]);
        for _ in 0..clients * requests {
            let asked = context.recv(Source::Any, Tag::Is(ASK), &mut ask)?;
            context.send(asked.from, GIVE, &page)?;
        }
    } else if client {
        let (ask, mut page) = ([1; REQUEST], [0; PAGE]);
        for _ in 0..requests {
            context.send(0, ASK, &ask)?;
            context.recv(Source::Rank(0), Tag::Is(GIVE), &mut page)?;
        }
    }
    Ok(())
}

/// Packets that this rank has sent, by kind.
fn packets(context: &Context) -> [u64; 4] {
    let counters = context.counters();
    let of = |kind: &&str| counters.iter().find(|(name, _)| name == kind);
    KINDS.map(|kind| of(&kind).map_or(0, |(_, value)| *value))
}
