//! `kumi call meta`: runs a metaserver.

use super::access::{GuardArgs, log};
use crate::error::Error;
use crate::{output, parse};
use clap::Args;
use kumi_call::meta::{Config, serve_and_tell};
use kumi_call::server::Listener;

use super::etcd::EtcdArgs;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of `kumi call meta`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Servers register with `kumi call serve --meta ADDR`, clients give the metaserver's \
address where they would give a server's. Data goes straight between the two. With --tokens only users of the file \
may call, and only its servers (`kumi call token add NAME --server`) offer routines."
)]
pub struct MetaArgs {
    /// Address to listen on: HOST:PORT (port 0: any free port) or unix:PATH
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7071")]
    pub listen: String,
    /// Listen on an address that other machines reach, even without authentication or encryption
    #[arg(long)]
    pub insecure_listen: bool,
    #[command(flatten)]
    pub guard: GuardArgs,
    /// Policy for choosing servers: round-robin, least-load or min-completion
    #[arg(long, value_name = "NAME", default_value = "min-completion")]
    pub policy: String,
    /// Most calls that a server gets at a time [default: its number of slots]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub limit: Option<u32>,
    /// Most calls that may wait for a server
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub waiting: usize,
    /// Most attempts of a call
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub attempts: u32,
    /// How long a server may be silent before it counts as lost
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse::duration)]
    pub silence: Duration,
    /// How long calls wait for a server to come back when all that offer their routine are gone; then they fail
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse::duration)]
    pub return_time: Duration,
    /// File for placed calls, times and paths, read at the next start
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    #[command(flatten)]
    pub etcd: EtcdArgs,
    /// Address of the dashboard, /status.json and /metrics: HOST:PORT
    #[arg(long, value_name = "ADDR")]
    pub http: Option<String>,
}

/// Serves until SIGINT or SIGTERM.
pub fn run(args: &MetaArgs, cluster: &str) -> Result<(), Error> {
    log();
    let mut config = Config {
        policy: args.policy.clone(),
        limit: args.limit,
        waiting: args.waiting,
        attempts: args.attempts,
        silence: args.silence,
        return_time: args.return_time,
        state: args.state.clone(),
        users: args.guard.users()?,
        ..Config::default()
    };
    let listener = match args.listen.strip_prefix("unix:") {
        Some(path) => Listener::unix(Path::new(path))?,
        None => Listener::tcp(listen(args)?)?,
    };
    let address = listener.address().ok().flatten();
    config.etcd = args.etcd.settings(&args.listen, address)?;
    config.tls = args.guard.tls(cluster, address)?;
    let at = match address {
        Some(address) if config.tls.is_some() => format!("tls://{address}"),
        Some(address) => address.to_string(),
        None => args.listen.clone(),
    };
    let mut dashboard = None;
    if let Some(http) = &args.http {
        let address = self::address("--http", http)?;
        if !address.ip().is_loopback() && !args.insecure_listen {
            let why = "other machines reach this address, and whoever reaches it sees all users' calls; give \
                       --insecure-listen as well";
            return Err(Error::Usage(format!("--http {http}: {why}")));
        }
        let listener = TcpListener::bind(address).map_err(|source| {
            kumi_call::server::ServeError::Listen { at: address.to_string(), source }
        })?;
        dashboard = listener.local_addr().ok();
        config.http = Some(std::sync::Arc::new(listener));
    }
    let signals = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];
    let mut signals = signal_hook::iterator::Signals::new(signals)
        .map_err(|source| Error::SetUp { what: "signals", source })?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _signal = signals.forever().next();
        drop(stop);
    });
    let policy = config.policy.clone();
    let begins = || {
        if let Some(address) = dashboard {
            output::note(&format!("dashboard at http://{address}/"));
        }
        output::note(&format!("metaserver ({policy}) at {at}"));
    };
    serve_and_tell(config, listener, begins, async {
        // Nothing is ever sent: the receiver ends when the sender is dropped.
        let _gone = stopped.await;
    })?;
    Ok(())
}

fn listen(args: &MetaArgs) -> Result<SocketAddr, Error> {
    let address = address("--listen", &args.listen)?;
    match args.guard.gap(false) {
        Some(why) if !address.ip().is_loopback() && !args.insecure_listen => {
            Err(Error::Usage(format!(
                "--listen {}: other machines reach this address, and {why}; give --tokens and --tls-cert and \
                 --tls-key (or --tls-cluster), listen on 127.0.0.1 or unix:PATH, or give --insecure-listen as well",
                args.listen
            )))
        }
        _ => Ok(address),
    }
}

fn address(option: &str, text: &str) -> Result<SocketAddr, Error> {
    let wrong = |why: String| Error::Usage(format!("{option} {text}: {why}"));
    let mut found = text.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    found.next().ok_or_else(|| wrong("this host has no address".to_owned()))
}
