//! Proxy slot of a parallel routine: to its server a slot, it lets a job do the work.

use std::io;
use std::net::TcpListener;

use kumi_idl::{Interface, Scalar};

use super::launch::LaunchedJob;
use super::rank_connection::RankConnection;
use super::{ArgumentPart, Jobs, Setup, job_listener, places};
use crate::layout::Slot;
use crate::slot_protocol::{CallContext, MOST, Order, Reply};
use kumi_call_slot::job::{Job, JobStarter};
use kumi_call_wire::context::monotonic_ns;
use kumi_call_wire::native::Arena;

/// Starts jobs by proxies.
#[derive(Debug)]
pub(crate) struct ProxyJobStarter;

impl JobStarter for ProxyJobStarter {
    /// Opens the port for rank 0: another user may not enter the network namespace of the nodes. If it cannot be opened
    /// now, or the proxy can open its own, there is none.
    fn prepare(&self, setup: &mut crate::slot_protocol::Setup) {
        let jobs = setup.jobs.as_ref().filter(|_| setup.run_as.is_some());
        // If the proxy needs it, the proxy reports why it is missing.
        setup.job_listener = jobs.and_then(|jobs| job_listener::open(jobs).ok());
    }

    fn job(
        &self,
        interface: &Interface,
        json: &str,
        setup: &crate::slot_protocol::Setup,
    ) -> Result<Box<dyn Job>, String> {
        Ok(Box::new(Proxy::new(interface, json, setup)?))
    }
}

impl Job for Proxy {
    fn call(&mut self, arena: &Arena, slots: &[Slot], context: &CallContext) -> Reply {
        self.run(arena, slots, context)
    }
}

/// A proxy. Its job ends with it.
#[derive(Debug)]
pub(crate) struct Proxy {
    interface: Interface,
    jobs: Jobs,
    setup: Vec<u8>,
    /// The port opened by the process's former user, good for one job. Before the next job the cluster may
    /// restart, and with it the network namespace of this port.
    job_listener: Option<TcpListener>,
    /// Whether a job has already connected to that port.
    outdated: bool,
    running: Option<RunningJob>,
}

/// A job that waits for calls.
#[derive(Debug)]
struct RunningJob {
    ranks: u64,
    /// Dropped before the job, which ends when this closes.
    link: RankConnection,
    job: LaunchedJob,
}

impl Proxy {
    /// A proxy without a job; the first call starts one.
    ///
    /// # Errors
    /// An error message.
    pub fn new(
        interface: &Interface,
        json: &str,
        setup: &crate::slot_protocol::Setup,
    ) -> Result<Proxy, String> {
        let name = &interface.name;
        let jobs = setup.jobs.clone();
        let jobs =
            jobs.ok_or_else(|| format!("`{name}` is a job, and the server starts no jobs"))?;
        let told = Setup { interface: json.to_owned(), memory: setup.memory, files: setup.files };
        let job_listener = setup.job_listener.as_ref().map(TcpListener::try_clone).transpose();
        let job_listener = job_listener.map_err(|error| error.to_string())?;
        let told = serde_json::to_vec(&told).map_err(|error| error.to_string())?;
        Ok(Proxy {
            interface: interface.clone(),
            jobs,
            setup: told,
            job_listener,
            outdated: false,
            running: None,
        })
    }

    /// Lets the job run the routine on the arguments in the arena.
    fn run(&mut self, arena: &Arena, slots: &[Slot], context: &CallContext) -> Reply {
        let ranks = match self.ranks(arena, slots) {
            Ok(ranks) => ranks,
            Err(why) => return Reply::Failed(why),
        };
        let fits = |running: &RunningJob| {
            running.ranks == ranks && !running.job.ended() && running.link.is_open()
        };
        let running = match self.running.take().filter(fits) {
            Some(running) => Ok(running),
            // This user cannot open it again.
            None if self.outdated => return Reply::Outdated,
            None => self.start(ranks),
        };
        self.outdated = self.job_listener.is_some();
        let mut running = match running {
            Ok(running) => running,
            Err(why) => {
                let name = &self.interface.name;
                return Reply::Failed(format!("the job of `{name}` cannot be started: {why}"));
            }
        };
        match running.call(&self.interface, arena, slots, context) {
            Ok(reply) => {
                self.running = Some(running);
                reply
            }
            Err(error) => {
                let (detail, said) = running.job.verdict();
                running.job.kill();
                let name = &self.interface.name;
                Reply::Crashed(detail, format!("the job of `{name}` is over: {said} ({error})"))
            }
        }
    }

    /// The number of ranks for a call, from its scalars in the arena.
    fn ranks(&self, arena: &Arena, slots: &[Slot]) -> Result<u64, String> {
        let scalar = |(index, slot): (usize, &Slot)| {
            let param = self.interface.params.get(index)?;
            let element = param.scalar().filter(|_| param.mode.is_sent())?;
            Scalar::decode(element, &arena.read(slot.offset, slot.bytes))
        };
        let scalars = self.interface.params.iter().zip(slots).enumerate();
        let scalars: Vec<_> = scalars.map(|(index, (_, slot))| scalar((index, slot))).collect();
        let wanted = self.interface.ranks(&scalars).map_err(|error| error.to_string())?;
        match wanted.unwrap_or(0) {
            0 => Ok(self.jobs.ranks),
            ranks if ranks <= self.jobs.ranks => Ok(ranks),
            ranks => Err(format!("{ranks} ranks are more than the server gives")),
        }
    }

    fn start(&self, ranks: u64) -> Result<RunningJob, String> {
        let opened = match &self.job_listener {
            Some(_) => None,
            None => Some(job_listener::open(&self.jobs)?),
        };
        let job_listener =
            self.job_listener.as_ref().or(opened.as_ref()).ok_or("there is no port")?;
        let (job, mut link) =
            LaunchedJob::start(&self.jobs, job_listener, &self.interface.name, ranks)?;
        link.send(&self.setup).map_err(|error| error.to_string())?;
        Ok(RunningJob { ranks, link, job })
    }
}

impl RunningJob {
    fn call(
        &mut self,
        interface: &Interface,
        arena: &Arena,
        slots: &[Slot],
        context: &CallContext,
    ) -> io::Result<Reply> {
        let mut order = (arena.length() as u64).to_le_bytes().to_vec();
        let now = monotonic_ns()?;
        let context = CallContext {
            // The ranks' machines have other clocks.
            deadline_ns: context.deadline_ns.map(|deadline| deadline.saturating_sub(now)),
            ..*context
        };
        order.extend(Order::RunWithin(0, 0, slots.to_vec(), context).encode());
        self.link.send(&order)?;
        for part in [ArgumentPart::Small, ArgumentPart::Arrays] {
            for slot in places(interface, slots, part) {
                self.link.give(arena, slot)?;
            }
        }
        let reply = self.link.receive(MOST)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        // A rank says nothing else. Other bytes may come from the routine and must not reach the server.
        let Some(reply @ Reply::Done(_)) = Reply::decode(&reply) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "rank 0 sent an invalid reply"));
        };
        for slot in places(interface, slots, ArgumentPart::Results) {
            self.link.take(arena, slot)?;
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::super::rank_connection::random;
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    /// A job whose rank 0 answers the first call with these bytes and leaves.
    fn job(interface: &Interface, answer: Vec<u8>) -> (RunningJob, std::thread::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let key = random().expect("bytes");
        let sent: usize = interface.params.iter().filter(|param| param.mode.is_sent()).count();
        let rank = std::thread::spawn(move || {
            let (mut link, _order) = RankConnection::connect(&address, &key).expect("it is let in");
            let arena = Arena::new(64).expect("memory");
            for _ in 0..sent {
                link.take(&arena, &Slot { offset: 0, bytes: 8, text: 0 }).expect("an argument");
            }
            std::io::Write::write_all(&mut link.stream().expect("it"), &answer).expect("sent");
        });
        let link = RankConnection::accept(listener.accept().expect("a connection").0, &key)
            .expect("rank 0");
        let mut command = Command::new("sleep");
        let child = command.arg("600").stderr(Stdio::piped()).spawn().expect("sleep");
        let job = LaunchedJob::attended(child).expect("a job");
        (RunningJob { ranks: 1, link, job }, rank)
    }

    #[test]
    fn rank_0_can_only_say_that_it_is_done() {
        let text = "Define f(mode_in double a, mode_out double b) Parallel 1 { *b = a; }";
        let module = kumi_idl::parse(text.as_bytes()).module.expect("a description");
        let interface = &module.interfaces[0];
        let slots = [0, 8].map(|offset| Slot { offset, bytes: 8, text: 0 });
        let framed = |reply: Reply| {
            let bytes = reply.encode();
            [u32::try_from(bytes.len()).expect("short").to_le_bytes().to_vec(), bytes].concat()
        };
        let call = |answer: Vec<u8>| {
            let (mut running, rank) = job(interface, answer);
            assert!(running.link.is_open());
            let arena = Arena::new(64).expect("memory");
            let result = running.call(interface, &arena, &slots, &CallContext::default());
            rank.join().expect("rank 0");
            let begin = Instant::now();
            while running.link.is_open() {
                // A busy machine may take its time.
                assert!(begin.elapsed() < Duration::from_secs(60), "it has gone");
                std::thread::sleep(Duration::from_millis(1));
            }
            running.job.kill();
            (result.map_err(|error| error.kind()), arena.read(8, 8))
        };
        let result = [framed(Reply::Done(5)), vec![7; 8]].concat();
        assert_eq!(call(result), (Ok(Reply::Done(5)), vec![7; 8]));
        let short = [framed(Reply::Done(5)), vec![7; 5]].concat();
        assert_eq!(call(short).0, Err(io::ErrorKind::UnexpectedEof));
        assert_eq!(call(Vec::new()).0, Err(io::ErrorKind::UnexpectedEof));
        let no = || "no".to_owned();
        for reply in [
            Reply::Failed(no()),
            Reply::Refused(no()),
            Reply::Raised(no()),
            Reply::Crashed(1, no()),
            Reply::Callback { parameter: 0, head: 8, bytes: 64 },
        ] {
            assert_eq!(call(framed(reply)).0, Err(io::ErrorKind::InvalidData));
        }
        assert_eq!(call(vec![255; 4]).0, Err(io::ErrorKind::InvalidData));
    }
}
