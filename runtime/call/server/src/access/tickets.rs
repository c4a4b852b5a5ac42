//! Tickets of attempts that a metaserver has sent to this server.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use kumi_rpc::{AttemptState, Ticket};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Number of used tickets that are remembered, so that none is accepted twice.
const MOST_SPENT: usize = 65_536;

/// A ticket whose call is here.
#[derive(Debug)]
struct AdmittedTicket {
    /// The call's number in the pool.
    job: u64,
    /// Its arguments have arrived.
    runs: bool,
    /// The metaserver does not want it any more.
    stopped: bool,
    /// The outcome.
    fate: AttemptState,
}

#[derive(Debug, Default)]
struct State {
    here: BTreeMap<Ticket, AdmittedTicket>,
    /// Used or withdrawn tickets and their outcomes. The queue has the oldest first.
    ticket_refused: BTreeMap<Ticket, AttemptState>,
    order: VecDeque<Ticket>,
    /// The task that talks to the metaserver, if it runs.
    news: Option<UnboundedSender<(Ticket, AttemptState)>>,
}

/// All tickets of a server.
#[derive(Debug, Default)]
pub struct Tickets(RefCell<State>);

/// The ticket of a call that is here. Dropping this ends the ticket.
#[derive(Debug)]
pub struct TicketGuard {
    ticket: Ticket,
    tickets: Rc<Tickets>,
}

/// What to do with the call of an unwanted ticket.
#[derive(Debug, PartialEq, Eq)]
pub enum StopAction {
    /// It is not here, and the metaserver was told.
    Nothing,
    /// Cancel this call of the pool.
    Cancel(u64),
}

impl State {
    fn spend(&mut self, ticket: Ticket, fate: AttemptState) {
        if self.ticket_refused.insert(ticket, fate).is_none() {
            self.order.push_back(ticket);
        }
        if self.order.len() > MOST_SPENT
            && let Some(oldest) = self.order.pop_front()
        {
            self.ticket_refused.remove(&oldest);
        }
    }

    fn tell(&mut self, ticket: Ticket, fate: AttemptState) {
        if let Some(news) = &self.news {
            // Without a connection nobody is told; the next registration lists all tickets.
            let _gone = news.send((ticket, fate));
        }
    }
}

impl Tickets {
    /// The receiver of ticket events.
    pub fn listen(&self) -> UnboundedReceiver<(Ticket, AttemptState)> {
        let (news, receiver) = unbounded_channel();
        self.0.borrow_mut().news = Some(news);
        receiver
    }

    /// Accepts the ticket of a call. `None`: it is used up, or here already.
    pub fn admit(self: &Rc<Tickets>, ticket: Ticket, job: u64) -> Option<TicketGuard> {
        let mut state = self.0.borrow_mut();
        if state.ticket_refused.contains_key(&ticket) || state.here.contains_key(&ticket) {
            return None;
        }
        state.here.insert(
            ticket,
            AdmittedTicket { job, runs: false, stopped: false, fate: AttemptState::Unknown },
        );
        Some(TicketGuard { ticket, tickets: Rc::clone(self) })
    }

    /// The metaserver does not want a ticket any more.
    pub fn stop(&self, ticket: Ticket) -> StopAction {
        let mut state = self.0.borrow_mut();
        match state.here.get_mut(&ticket) {
            Some(here) => {
                let (job, runs) = (here.job, here.runs);
                here.stopped = true;
                if !runs {
                    // Its arguments may take long to arrive. It will not run then.
                    state.tell(ticket, AttemptState::Unknown);
                }
                StopAction::Cancel(job)
            }
            None => {
                let fate =
                    state.ticket_refused.get(&ticket).copied().unwrap_or(AttemptState::Unknown);
                state.spend(ticket, fate);
                state.tell(ticket, fate);
                StopAction::Nothing
            }
        }
    }

    /// The metaserver withdraws a ticket whose call has not arrived; a later arrival is refused.
    pub fn expire(&self, ticket: Ticket) {
        if !self.0.borrow().here.contains_key(&ticket) {
            self.stop(ticket);
        }
    }

    /// The state of a ticket.
    pub fn fate(&self, ticket: Ticket) -> AttemptState {
        let state = self.0.borrow();
        match state.here.get(&ticket) {
            Some(here) if here.runs || !here.stopped => AttemptState::Accepted,
            Some(_) => AttemptState::Unknown,
            None => state.ticket_refused.get(&ticket).copied().unwrap_or(AttemptState::Unknown),
        }
    }

    /// All tickets whose calls run or may still run.
    pub fn here(&self) -> Vec<Ticket> {
        let state = self.0.borrow();
        let live = state.here.iter().filter(|(_, here)| here.runs || !here.stopped);
        live.map(|(ticket, _)| *ticket).collect()
    }

    /// How many of them wait for a slot or run.
    pub fn running(&self) -> usize {
        self.0.borrow().here.values().filter(|here| here.runs).count()
    }
}

impl TicketGuard {
    /// The arguments have arrived. False: the call is not wanted any more.
    pub fn runs(&self) -> bool {
        let mut state = self.tickets.0.borrow_mut();
        let stopped = match state.here.get_mut(&self.ticket) {
            Some(here) => {
                here.runs |= !here.stopped;
                here.stopped
            }
            None => true,
        };
        if !stopped {
            state.tell(self.ticket, AttemptState::Accepted);
        }
        !stopped
    }

    /// The call is over.
    pub fn ended(&self, fate: AttemptState) {
        if let Some(here) = self.tickets.0.borrow_mut().here.get_mut(&self.ticket) {
            here.fate = fate;
        }
    }
}

impl Drop for TicketGuard {
    fn drop(&mut self) {
        let mut state = self.tickets.0.borrow_mut();
        let here = state.here.remove(&self.ticket);
        let fate = here.as_ref().map_or(AttemptState::Unknown, |here| here.fate);
        state.spend(self.ticket, fate);
        if here.is_some_and(|here| here.runs || !here.stopped) {
            state.tell(self.ticket, fate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(call: u64) -> Ticket {
        Ticket { call, attempt: 1 }
    }

    #[test]
    fn a_ticket_is_taken_once() {
        let tickets = Rc::new(Tickets::default());
        let mut news = tickets.listen();
        let held = tickets.admit(ticket(1), 5).expect("it is new");
        assert!(tickets.admit(ticket(1), 6).is_none());
        assert!(held.runs());
        assert_eq!((tickets.running(), tickets.here()), (1, vec![ticket(1)]));
        assert_eq!(tickets.stop(ticket(1)), StopAction::Cancel(5));
        assert!(!held.runs());
        assert_eq!(tickets.fate(ticket(1)), AttemptState::Accepted);
        held.ended(AttemptState::Completed(9));
        drop(held);
        assert_eq!(tickets.fate(ticket(1)), AttemptState::Completed(9));
        assert!(tickets.admit(ticket(1), 7).is_none());
        assert_eq!(tickets.stop(ticket(2)), StopAction::Nothing);
        assert!(tickets.admit(ticket(2), 8).is_none(), "it was stopped before it came");
        let told: Vec<_> = std::iter::from_fn(|| news.try_recv().ok()).collect();
        let gone = (ticket(2), AttemptState::Unknown);
        assert_eq!(
            told,
            [(ticket(1), AttemptState::Accepted), (ticket(1), AttemptState::Completed(9)), gone]
        );
    }

    #[test]
    fn a_stop_is_answered_while_arguments_come() {
        let tickets = Rc::new(Tickets::default());
        let mut news = tickets.listen();
        let held = tickets.admit(ticket(1), 5).expect("it is new");
        for _ in 0..2 {
            assert_eq!(tickets.stop(ticket(1)), StopAction::Cancel(5));
            assert!(tickets.here().is_empty(), "nobody is told that it runs");
        }
        let told: Vec<_> = std::iter::from_fn(|| news.try_recv().ok()).collect();
        assert_eq!(
            told,
            [(ticket(1), AttemptState::Unknown); 2],
            "at once, not when they have come"
        );
        assert!(tickets.admit(ticket(1), 6).is_none());
        assert!(!held.runs());
        assert_eq!(tickets.running(), 0);
        drop(held);
        assert!(tickets.admit(ticket(1), 7).is_none());
        assert!(news.try_recv().is_err(), "that has been said");
    }

    #[test]
    fn what_has_not_come_expires() {
        let tickets = Rc::new(Tickets::default());
        let mut news = tickets.listen();
        let held = tickets.admit(ticket(1), 5).expect("it is new");
        tickets.expire(ticket(1));
        assert!(news.try_recv().is_err(), "its arguments come");
        assert!(held.runs());
        tickets.expire(ticket(2));
        assert!(tickets.admit(ticket(2), 6).is_none());
        let told: Vec<_> = std::iter::from_fn(|| news.try_recv().ok()).collect();
        assert_eq!(told, [(ticket(1), AttemptState::Accepted), (ticket(2), AttemptState::Unknown)]);
    }

    #[test]
    fn memory_is_bounded() {
        let tickets = Tickets::default();
        (0..MOST_SPENT as u64 + 10).for_each(|call| {
            tickets.stop(ticket(call));
        });
        let state = tickets.0.borrow();
        assert_eq!((state.ticket_refused.len(), state.order.len()), (MOST_SPENT, MOST_SPENT));
    }
}
