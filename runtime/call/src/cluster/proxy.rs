//! The slot of a parallel routine, as its server sees it: it has a job do the work.

use std::io;
use std::net::TcpListener;

use kumi_idl::{Interface, Scalar};

use super::launch::Launched;
use super::link::Link;
use super::{Jobs, Part, Setup, door, places};
use crate::layout::Slot;
use crate::native::Arena;
use crate::protocol::{MOST, Order, Reply};

/// A proxy. Its job ends with it.
#[derive(Debug)]
pub(crate) struct Proxy {
    interface: Interface,
    jobs: Jobs,
    setup: Vec<u8>,
    /// Opened by the user that this process was before.
    door: Option<TcpListener>,
    running: Option<Running>,
}

/// A job that waits for calls.
#[derive(Debug)]
struct Running {
    ranks: u64,
    /// Before the job, which ends when this is closed.
    link: Link,
    job: Launched,
}

impl Proxy {
    /// A proxy without a job: that is started for the first call.
    ///
    /// # Errors
    /// A sentence.
    pub fn new(interface: &Interface, setup: &crate::protocol::Setup) -> Result<Proxy, String> {
        let name = &interface.name;
        let jobs = setup.jobs.clone();
        let jobs = jobs.ok_or_else(|| format!("`{name}` is a job, and the server starts none"))?;
        let told =
            Setup { interface: setup.interface.clone(), memory: setup.memory, files: setup.files };
        let door = setup.door.as_ref().map(TcpListener::try_clone).transpose();
        let door = door.map_err(|error| error.to_string())?;
        let told = serde_json::to_vec(&told).map_err(|error| error.to_string())?;
        Ok(Proxy { interface: interface.clone(), jobs, setup: told, door, running: None })
    }

    /// Has the job call the routine with what lies in the arena.
    pub fn call(&mut self, arena: &Arena, slots: &[Slot]) -> Reply {
        let ranks = match self.ranks(arena, slots) {
            Ok(ranks) => ranks,
            Err(why) => return Reply::Failed(why),
        };
        let fits = |running: &Running| {
            running.ranks == ranks && !running.job.ended() && running.link.is_open()
        };
        let running = match self.running.take().filter(fits) {
            Some(running) => Ok(running),
            None => self.start(ranks),
        };
        let mut running = match running {
            Ok(running) => running,
            Err(why) => {
                let name = &self.interface.name;
                return Reply::Failed(format!("the job of `{name}` cannot be started: {why}"));
            }
        };
        match running.call(&self.interface, arena, slots) {
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

    /// The ranks of a call, by its scalars in the arena.
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

    fn start(&self, ranks: u64) -> Result<Running, String> {
        let opened = match &self.door {
            Some(_) => None,
            None => Some(door::open(&self.jobs)?),
        };
        let door = self.door.as_ref().or(opened.as_ref()).ok_or("there is no port")?;
        let (job, mut link) = Launched::start(&self.jobs, door, &self.interface.name, ranks)?;
        link.send(&self.setup).map_err(|error| error.to_string())?;
        Ok(Running { ranks, link, job })
    }
}

impl Running {
    fn call(&mut self, interface: &Interface, arena: &Arena, slots: &[Slot]) -> io::Result<Reply> {
        let mut order = (arena.length() as u64).to_le_bytes().to_vec();
        order.extend(Order::Run(0, slots.to_vec()).encode());
        self.link.send(&order)?;
        for part in [Part::Small, Part::Arrays] {
            for slot in places(interface, slots, part) {
                self.link.give(arena, slot)?;
            }
        }
        let reply = self.link.receive(MOST)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        // A rank has nothing else to say; what its routine makes of it is not passed on to the server.
        let Some(reply @ Reply::Done(_)) = Reply::decode(&reply) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "rank 0 says what it cannot"));
        };
        for slot in places(interface, slots, Part::Results) {
            self.link.take(arena, slot)?;
        }
        Ok(reply)
    }
}
